import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;

/**
 * The asynchronous client of ZooKeeper, doing nothing else: what a capture or an apply is compared with.
 *
 * <pre>
 * create HOSTS ROOT FILE BATCH WINDOW   the records of a file, BATCH in a transaction, WINDOW transactions in flight
 * read HOSTS ROOT WINDOW                every node of the ledgers' tree below a root, WINDOW reads in flight
 * delete HOSTS ROOT                     a root, ledgers and folders below it
 * </pre>
 *
 * Prints {"seconds", "ledgers"}: from before connecting to the last answer, without the start of the virtual machine.
 */
public final class ZkClient {
    private static final int SESSION_MS = 30_000;
    private static final int DELETES = 1_000;
    private static final int DELETES_IN_FLIGHT = 4;

    private final ZooKeeper zk;
    private final AtomicInteger failures = new AtomicInteger();

    private ZkClient(String hosts) throws IOException, InterruptedException {
        CountDownLatch connected = new CountDownLatch(1);
        zk = new ZooKeeper(hosts, SESSION_MS, event -> {
            if (event.getState() == KeeperState.SyncConnected) {
                connected.countDown();
            }
        });
        connected.await();
    }

    public static void main(String[] arguments) throws Exception {
        long began = System.nanoTime();
        ZkClient client = new ZkClient(arguments[1]);
        String root = arguments[2];
        int done = switch (arguments[0]) {
            case "create" -> client.create(
                    root, Path.of(arguments[3]), Integer.parseInt(arguments[4]), Integer.parseInt(arguments[5]));
            case "read" -> client.read(root, Integer.parseInt(arguments[3]));
            case "delete" -> client.delete(root);
            default -> throw new IllegalArgumentException(arguments[0]);
        };
        double seconds = (System.nanoTime() - began) / 1e9;
        client.zk.close();
        if (client.failures.get() > 0) {
            throw new IllegalStateException(client.failures + " requests failed");
        }
        System.out.printf("{\"seconds\": %.6f, \"ledgers\": %d}%n", seconds, done);
    }

    private int create(String root, Path file, int batch, int window) throws Exception {
        Set<String> made = new HashSet<>();
        Transactions transactions = new Transactions(batch, window);
        int done = 0;
        try (DataInputStream records = new DataInputStream(new BufferedInputStream(Files.newInputStream(file)))) {
            for (; records.available() > 0; done++) {
                String key = root + new String(records.readNBytes(records.readInt()), StandardCharsets.UTF_8);
                makeParents(key, made);
                byte[] value = records.readNBytes(records.readInt());
                transactions.add(Op.create(key, value, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT));
            }
        }
        transactions.end();
        return done;
    }

    /** Transactions of a fixed size, some in flight. */
    private final class Transactions {
        private final int batch;
        private final int window;
        private final Semaphore free;
        private List<Op> operations = new ArrayList<>();

        Transactions(int batch, int window) {
            this.batch = batch;
            this.window = window;
            this.free = new Semaphore(window);
        }

        void add(Op operation) throws InterruptedException {
            operations.add(operation);
            if (operations.size() == batch) {
                send();
            }
        }

        void end() throws InterruptedException {
            if (!operations.isEmpty()) {
                send();
            }
            free.acquire(window);
        }

        private void send() throws InterruptedException {
            free.acquire();
            zk.multi(operations, (code, path, context, results) -> {
                if (code != KeeperException.Code.OK.intValue()) {
                    failures.incrementAndGet();
                }
                free.release();
            }, null);
            operations = new ArrayList<>();
        }
    }

    private void makeParents(String key, Set<String> made) throws Exception {
        String parent = key.substring(0, key.lastIndexOf('/'));
        if (parent.isEmpty() || made.contains(parent)) {
            return;
        }
        makeParents(parent, made);
        try {
            zk.create(parent, new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        } catch (KeeperException.NodeExistsException exists) {
            // It need not be made.
        }
        made.add(parent);
    }

    private int read(String root, int window) throws Exception {
        Semaphore free = new Semaphore(window);
        Deque<String> folders = new ArrayDeque<>();
        folders.add(root);
        int done = 0;
        while (!folders.isEmpty()) {
            String folder = folders.remove();
            for (String name : zk.getChildren(folder, false)) {
                if (name.matches("[0-9]{2}|[0-9]{4}")) {
                    folders.add(folder + "/" + name);
                } else if (name.startsWith("L") && !name.equals("LAYOUT")) {
                    free.acquire();
                    done++;
                    zk.getData(folder + "/" + name, false, (code, path, context, value, stat) -> {
                        if (code != KeeperException.Code.OK.intValue()) {
                            failures.incrementAndGet();
                        }
                        free.release();
                    }, null);
                }
            }
        }
        free.acquire(window);
        return done;
    }

    private int delete(String root) throws Exception {
        Deque<String> todo = new ArrayDeque<>();
        Deque<String> folders = new ArrayDeque<>();
        Transactions transactions = new Transactions(DELETES, DELETES_IN_FLIGHT);
        if (zk.exists(root, false) != null) {
            todo.add(root);
        }
        while (!todo.isEmpty()) {
            String folder = todo.remove();
            folders.push(folder);
            for (String name : zk.getChildren(folder, false)) {
                if (name.startsWith("L")) {
                    transactions.add(Op.delete(folder + "/" + name, -1));
                } else {
                    todo.add(folder + "/" + name);
                }
            }
        }
        // The deepest folders were found last; requests are carried out in order.
        for (String folder : folders) {
            transactions.add(Op.delete(folder, -1));
        }
        transactions.end();
        return 0;
    }
}
