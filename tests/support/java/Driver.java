import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.netty.buffer.UnpooledByteBufAllocator;
import io.netty.channel.Channel;
import io.netty.channel.EventLoop;
import io.netty.channel.group.ChannelGroup;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.BindException;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;
import org.apache.bookkeeper.bookie.BookieImpl;
import org.apache.bookkeeper.bookie.GarbageCollectorThread;
import org.apache.bookkeeper.bookie.LedgerStorage;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.ClientContext;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.RackawareEnsemblePlacementPolicy;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.meta.AbstractZkLedgerManager;
import org.apache.bookkeeper.meta.LedgerManager;
import org.apache.bookkeeper.meta.MetadataDrivers;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.proto.BookieProtocol;
import org.apache.bookkeeper.proto.BookieServer;
import org.apache.bookkeeper.proto.checksum.DigestManager;
import org.apache.bookkeeper.server.EmbeddedServer;
import org.apache.bookkeeper.server.conf.BookieConfiguration;
import org.apache.bookkeeper.util.AvailabilityOfEntriesOfLedger;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZKUtil;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.server.NIOServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;

/**
 * One process with a real ZooKeeper server, real bookies and a real client, told what to do line by line.
 *
 * <p>A line of stdin is one JSON object: "op" and its arguments. It is answered by one line of stdout: {"result": ...} or
 * {"error": "..."}. Bytes travel as base64. Folders are taken relative to the working directory, so that cookies are
 * relative too and the whole cluster can be copied elsewhere. What tests/support/cluster.py does not use is not here.
 */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, String> STORAGE = Map.of(
        "sorted", "org.apache.bookkeeper.bookie.SortedLedgerStorage",
        "interleaved", "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
        "db", "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage");
    /** What keeps the ports of bookies from other tests, as long as this process lives. */
    private static final List<DatagramSocket> CLAIMS = new ArrayList<>();
    private static final Log LOG = new Log();
    /** Milliseconds that no test lasts: what happens on its own after this long never happens. */
    private static final int NEVER = 24 * 3600 * 1000;

    private ZooKeeperServer zkServer;
    private NIOServerCnxnFactory zkPort;
    private ZooKeeper zk;
    private String root;
    /** Of etcd, where the metadata is there; null: ZooKeeper has it. */
    private String etcd;
    private BookKeeper client;
    private final Map<Boolean, BookKeeper> placed = new HashMap<>();
    private final Set<Integer> muted = ConcurrentHashMap.newKeySet();
    private final Map<Integer, EmbeddedServer> bookies = new TreeMap<>();
    private final Map<Integer, Counters> counters = new HashMap<>();
    private final Map<Integer, List<Path>> folders = new HashMap<>();
    private final Map<Integer, Integer> ports = new HashMap<>();
    private final Map<Long, LedgerHandle> writers = new HashMap<>();
    /** Ledgers that stay open for reading, by a name of the caller's. */
    private final Map<String, LedgerHandle> readers = new HashMap<>();
    /** Ledgers whose last entry that was sent is not the last one that is confirmed, although all were answered. */
    private final Set<Long> unordered = new HashSet<>();

    /** What is logged, to the file of the cluster that runs. */
    private static final class Log extends OutputStream {
        private static final OutputStream OWN = new FileOutputStream(FileDescriptor.err);
        private volatile OutputStream to = OWN;

        void goTo(OutputStream next) throws IOException {
            OutputStream old = to;
            to = next;
            if (old != OWN) {
                old.close();
            }
        }

        @Override
        public void write(int octet) throws IOException {
            to.write(octet);
        }

        @Override
        public void write(byte[] octets, int first, int length) throws IOException {
            to.write(octets, first, length);
        }
    }

    // ------------------------------------------------------------------ ZooKeeper

    private int zkStart(Path folder, String ledgersRoot) throws Exception {
        Files.createDirectories(folder);
        root = ledgersRoot;
        zkServer = new ZooKeeperServer(folder.toFile(), folder.toFile(), 1000);
        zkPort = new NIOServerCnxnFactory();
        zkPort.configure(new InetSocketAddress("127.0.0.1", 0), 500);
        zkPort.startup(zkServer);
        CountDownLatch connected = new CountDownLatch(1);
        zk = new ZooKeeper("127.0.0.1:" + zkPort.getLocalPort(), 30_000, event -> connected.countDown());
        if (!connected.await(20, TimeUnit.SECONDS)) {
            throw new IOException("ZooKeeper does not answer");
        }
        return zkPort.getLocalPort();
    }

    /** A node and all below it; what goes meanwhile is left out. */
    private void dump(String path, List<Object> nodes) throws Exception {
        Stat stat = new Stat();
        byte[] data;
        List<String> names;
        try {
            data = zk.getData(path, false, stat);
            names = zk.getChildren(path, false).stream().sorted().toList();
        } catch (KeeperException.NoNodeException e) {
            return;
        }
        Map<String, Object> node = new LinkedHashMap<>();
        node.put("path", path);
        node.put("data", data == null ? null : base64(data));
        node.put("version", stat.getVersion());
        node.put("cversion", stat.getCversion());
        node.put("ephemeral", stat.getEphemeralOwner() != 0);
        nodes.add(node);
        for (String name : names) {
            dump(path.equals("/") ? "/" + name : path + "/" + name, nodes);
        }
    }

    private void put(String path, byte[] data) throws Exception {
        for (int slash = path.indexOf('/', 1); slash > 0; slash = path.indexOf('/', slash + 1)) {
            createIfAbsent(path.substring(0, slash), new byte[0]);
        }
        if (!createIfAbsent(path, data)) {
            zk.setData(path, data, -1);
        }
    }

    private boolean createIfAbsent(String path, byte[] data) throws Exception {
        try {
            zk.create(path, data, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            return true;
        } catch (KeeperException.NodeExistsException e) {
            return false;
        }
    }

    /** Makes sequential children until the next one would be numbered {@code next}. */
    private void raise(String path, int next) throws Exception {
        int made;
        do {
            String child = zk.create(path + "/ID-", null, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL_SEQUENTIAL);
            zk.delete(child, -1);
            made = Integer.parseInt(child.substring(child.lastIndexOf('-') + 1));
        } while (made < next - 1);
    }

    // ------------------------------------------------------------------ bookies

    private String uri(String layout) {
        return etcd != null ? etcd : "zk+" + layout + "://127.0.0.1:" + zkPort.getLocalPort() + root;
    }

    private ServerConfiguration server(String layout) {
        ServerConfiguration conf = new ServerConfiguration();
        conf.setMetadataServiceUri(uri(layout));
        conf.setZkTimeout(20_000);
        return conf;
    }

    private boolean bookieStart(JsonNode a) throws Exception {
        int n = a.get("n").asInt();
        ServerConfiguration conf = server("null");
        conf.setBookieId(a.get("id").asText());
        conf.setAdvertisedAddress("127.0.0.1");
        conf.setListeningInterface("lo");
        conf.setAllowLoopback(true);
        conf.setBookiePort(a.hasNonNull("port") ? a.get("port").asInt() : ports.computeIfAbsent(n, any -> freePort()));
        List<Path> own = new ArrayList<>();
        conf.setJournalDirsName(folders(a.get("journals"), own));
        conf.setLedgerDirNames(folders(a.get("ledgers"), own));
        if (a.hasNonNull("indexes")) {
            conf.setIndexDirName(folders(a.get("indexes"), own));
        }
        folders.put(n, own);
        conf.setLedgerStorageClass(STORAGE.get(a.get("storage").asText()));
        // nothing happens on its own: no collection, no checkpoint, no replication, no disk that counts as full
        conf.setGcWaitTime(NEVER);
        conf.setMinorCompactionInterval(2L * NEVER);
        conf.setMajorCompactionInterval(4L * NEVER);
        conf.setFlushInterval(NEVER);
        conf.setDiskCheckInterval(NEVER);
        conf.setAutoRecoveryDaemonEnabled(false);
        conf.setDiskUsageThreshold(0.99f);
        conf.setDiskUsageWarnThreshold(0.99f);
        conf.setDiskLowWaterMarkUsageThreshold(0.99f);
        // small: many bookies share one process
        conf.setEntryLogFilePreAllocationEnabled(false);
        conf.setEntryLogSizeLimit(1 << 20);
        conf.setMinUsableSizeForEntryLogCreation(1 << 20);
        conf.setJournalSyncData(false);
        conf.setProperty("journalPreAllocSizeMB", 1);
        conf.setMaxJournalSizeMB(4);
        conf.setProperty("allowMultipleDirsUnderSameDiskPartition", true);
        conf.setProperty("dbStorage_writeCacheMaxSizeMb", 8);
        conf.setProperty("dbStorage_readAheadCacheMaxSizeMb", 4);
        conf.setProperty("dbStorage_rocksDB_blockCacheSize", 4 << 20);
        conf.setProperty("dbStorage_rocksDB_writeBufferSizeMB", 4);
        conf.setNumAddWorkerThreads(1);
        conf.setNumReadWorkerThreads(1);
        conf.setNumLongPollWorkerThreads(1);
        conf.setNumHighPriorityWorkerThreads(1);
        conf.setServerNumIOThreads(2);
        a.path("props").fields().forEachRemaining(p -> conf.setProperty(p.getKey(), p.getValue().asText()));
        counters.put(n, new Counters());
        // A collector begins later the more there were in its process, lest all of a cluster begin at once: the hundredth of
        // a process, of clusters that are gone, would wait for a hundred times gcWaitTime.
        ((AtomicLong) field(GarbageCollectorThread.class, null, "threadNum")).set(0);
        EmbeddedServer bookie =
            EmbeddedServer.builder(new BookieConfiguration(conf)).statsProvider(counters.get(n)).build();
        bookie.getLifecycleComponentStack().start();
        if (!bookie.getBookieService().getServer().isRunning()) {
            bookie.getLifecycleComponentStack().close();
            throw new IOException("the bookie did not start");
        }
        bookies.put(n, bookie);
        return true;
    }

    private static String[] folders(JsonNode names, List<Path> all) {
        List<String> texts = new ArrayList<>();
        for (JsonNode name : names) {
            texts.add(name.asText());
            all.add(Path.of(name.asText()));
        }
        return texts.toArray(new String[0]);
    }

    /**
     * A port for a bookie that goes down and comes back: not of those that the system gives to whoever connects, and
     * claimed until this process ends (see free_port in waiting.py, which claims in the same way).
     */
    private static int freePort() {
        InetAddress here = InetAddress.getLoopbackAddress();
        while (true) {
            int port = ThreadLocalRandom.current().nextInt(11_000, 32_000);
            try (ServerSocket free = new ServerSocket(port, 1, here)) {
                CLAIMS.add(new DatagramSocket(new InetSocketAddress("127.0.0.2", port)));
                return port;
            } catch (BindException e) {
                continue; // somebody has it
            } catch (IOException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    /**
     * Ends all that runs in this process; tells whether another cluster may begin in it. A collector of garbage may outlive
     * its bookie: it asks a store that is gone, again and again.
     */
    private boolean end() throws Exception {
        for (int n : muted) {
            server(n).resumeProcessing();
        }
        for (BookKeeper each : placed.values()) {
            each.close();
        }
        if (client != null) {
            client.close();
        }
        for (int n : List.copyOf(bookies.keySet())) {
            bookieStop(n);
        }
        if (zk != null) {
            zk.close();
            zkPort.shutdown();
            zkServer.shutdown();
        }
        CLAIMS.forEach(DatagramSocket::close);
        CLAIMS.clear();
        Placement.INSTEAD.clear();
        LOG.goTo(Log.OWN);
        return Thread.getAllStackTraces().keySet().stream()
            .noneMatch(thread -> thread.getName().startsWith("GarbageCollector"));
    }

    private boolean bookieStop(int n) {
        bookies.remove(n).getLifecycleComponentStack().close();
        return true;
    }

    /**
     * Leaves what {@code kill -9} leaves of a bookie that nobody writes to: its folders are copied while it runs, and the
     * copy replaces them after a shutdown, which would have flushed.
     */
    private boolean bookieKill(int n) throws Exception {
        for (Path folder : folders.get(n)) {
            List<String> before;
            do {
                before = listing(folder);
                delete(aside(folder));
                copy(folder, aside(folder));
            } while (!before.equals(listing(folder)));
        }
        if (muted.remove(n)) {
            // what it does from here on, it does to folders that are thrown away; no writer shall see it fail
            server(n).resumeProcessing();
            for (LedgerHandle ledger : writers.values()) {
                if (unordered.contains(ledger.getId())) {
                    continue;
                }
                await("a writer is answered", () -> ledger.getLastAddConfirmed() == ledger.getLastAddPushed());
            }
        }
        bookieStop(n);
        for (Path folder : folders.get(n)) {
            delete(folder);
            Files.move(aside(folder), folder);
        }
        return true;
    }

    private BookieServer server(int n) {
        return bookies.get(n).getBookieService().getServer();
    }

    /** Lets a bookie take nothing from here on: its threads wait until they are told to, and nothing comes between. */
    private static void mute(BookieServer server) throws Exception {
        Set<EventLoop> loops = new HashSet<>();
        for (Channel channel : (ChannelGroup) field(field(server, "nettyServer"), "allChannels")) {
            loops.add(channel.eventLoop());
        }
        CountDownLatch waiting = new CountDownLatch(loops.size());
        CountDownLatch told = new CountDownLatch(1);
        for (EventLoop loop : loops) {
            loop.execute(() -> {
                waiting.countDown();
                try {
                    told.await();
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            });
        }
        waiting.await();
        server.suspendProcessing();
        told.countDown();
    }

    private static Object field(Object of, String name) throws ReflectiveOperationException {
        return field(of.getClass(), of, name);
    }

    private static Object field(Class<?> kind, Object of, String name) throws ReflectiveOperationException {
        Field field = kind.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(of);
    }

    /** Collects garbage at once, and waits until a ledger is gone. */
    private boolean collect(int n, long ledger, int seconds) throws Exception {
        LedgerStorage storage = ((BookieImpl) server(n).getBookie()).getLedgerStorage();
        storage.forceGC();
        try {
            await("bookie " + n + " deletes ledger " + ledger, seconds, () -> !storage.ledgerExists(ledger));
        } catch (IOException e) {
            throw new IOException(e.getMessage() + "; its collector: " + collectors(), e);
        }
        return true;
    }

    /** Where the threads stand that collect garbage, of all bookies. */
    private static String collectors() {
        StringBuilder text = new StringBuilder();
        Thread.getAllStackTraces().forEach((thread, frames) -> {
            if (thread.getName().startsWith("GarbageCollector")) {
                text.append(thread.getName()).append(' ').append(List.of(frames)).append("; ");
            }
        });
        return text.toString();
    }

    /**
     * Deletes a ledger that all bookies which run have, and waits until each has collected it; all is on disks before.
     * A bookie that was collecting while the ledger came may never list it: then the caller takes another ledger.
     */
    private boolean pass(long ledger) throws Exception {
        for (int n : bookies.keySet()) {
            LedgerStorage storage = ((BookieImpl) server(n).getBookie()).getLedgerStorage();
            storage.flush();
            if (!storage.ledgerExists(ledger)) {
                throw new IOException("bookie " + n + " does not know the ledger");
            }
        }
        client().deleteLedger(ledger);
        for (int n : bookies.keySet()) {
            collect(n, ledger, 30);
        }
        return true;
    }

    private static void await(String what, Callable<Boolean> done) throws Exception {
        await(what, 120, done);
    }

    private static void await(String what, int seconds, Callable<Boolean> done) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (!done.call()) {
            if (System.nanoTime() > end) {
                throw new IOException("not in " + seconds + " s: " + what);
            }
            Thread.sleep(5);
        }
    }

    private static Path aside(Path folder) {
        return folder.resolveSibling(folder.getFileName() + ".killed");
    }

    private static List<Path> walk(Path folder) throws IOException {
        try (Stream<Path> all = Files.walk(folder)) {
            return all.sorted().toList();
        }
    }

    private static List<String> listing(Path folder) throws IOException {
        List<String> rows = new ArrayList<>();
        for (Path path : walk(folder)) {
            rows.add(path + " " + Files.size(path) + " " + Files.getLastModifiedTime(path));
        }
        return rows;
    }

    private static void copy(Path from, Path to) throws IOException {
        for (Path path : walk(from)) {
            Files.copy(path, to.resolve(from.relativize(path)));
        }
    }

    private static void delete(Path folder) throws IOException {
        if (Files.exists(folder)) {
            List<Path> paths = new ArrayList<>(walk(folder));
            java.util.Collections.reverse(paths);
            for (Path path : paths) {
                Files.delete(path);
            }
        }
    }

    // ------------------------------------------------------------------ the client

    /** Properties of the JVM that are settings of the client. */
    private static final String OF_CLIENTS = "client.";

    private ClientConfiguration clientConf() {
        ClientConfiguration conf = new ClientConfiguration();
        conf.setMetadataServiceUri(uri("null"));
        conf.setZkTimeout(20_000);
        conf.setNumIOThreads(2);
        conf.setNumWorkerThreads(2);
        conf.setAddEntryTimeout(8);
        conf.setReadEntryTimeout(5);
        conf.setProperty("enableDigestTypeAutodetection", true);
        System.getProperties().forEach((key, value) -> {
            if (key.toString().startsWith(OF_CLIENTS)) {
                conf.setProperty(key.toString().substring(OF_CLIENTS.length()), value);
            }
        });
        return conf;
    }

    private BookKeeper client() throws Exception {
        if (client == null) {
            client = BookKeeper.forConfig(clientConf()).build();
        }
        return client;
    }

    /** A client that takes the bookies it is told, and never loses patience; perhaps with explicit LACs. */
    private BookKeeper placed(boolean explicit) throws Exception {
        if (!placed.containsKey(explicit)) {
            ClientConfiguration conf = clientConf();
            conf.setAddEntryTimeout(600);
            conf.setEnsemblePlacementPolicy(Placement.class);
            if (explicit) {
                conf.setExplictLacInterval(10);
            }
            placed.put(explicit, BookKeeper.forConfig(conf).build());
        }
        return placed.get(explicit);
    }

    /** Ensembles as they are told. */
    public static final class Placement extends RackawareEnsemblePlacementPolicy {
        private static volatile List<BookieId> ensemble = List.of();
        private static final Map<BookieId, BookieId> INSTEAD = new ConcurrentHashMap<>();

        @Override
        public PlacementResult<List<BookieId>> newEnsemble(
                int size, int write, int ack, Map<String, byte[]> custom, Set<BookieId> excluded) {
            return PlacementResult.of(new ArrayList<>(ensemble), PlacementPolicyAdherence.MEETS_STRICT);
        }

        @Override
        public PlacementResult<BookieId> replaceBookie(
                int size, int write, int ack, Map<String, byte[]> custom, List<BookieId> members, BookieId old,
                Set<BookieId> excluded) {
            return PlacementResult.of(INSTEAD.get(old), PlacementPolicyAdherence.MEETS_STRICT);
        }
    }

    private static List<BookieId> ids(JsonNode names) {
        List<BookieId> found = new ArrayList<>();
        names.forEach(name -> found.add(BookieId.parse(name.asText())));
        return found;
    }

    /** Sends entries without waiting for the answers, only until bookies that are named list their last one. */
    private boolean send(JsonNode a) throws Exception {
        long id = a.get("ledger").asLong();
        LedgerHandle ledger = writers.get(id);
        JsonNode ids = a.path("ids");
        for (int i = 0; i < a.get("sizes").size(); i++) {
            byte[] payload = new byte[a.get("sizes").get(i).asInt()];
            org.apache.bookkeeper.client.AsyncCallback.AddCallback answered = (code, handle, entry, context) -> { };
            if (ids.isArray()) {
                ((org.apache.bookkeeper.client.LedgerHandleAdv) ledger)
                    .asyncAddEntry(ids.get(i).asLong(), payload, answered, null);
            } else {
                ledger.asyncAddEntry(payload, answered, null);
            }
        }
        BookKeeperAdmin admin = new BookKeeperAdmin(placed(false));
        for (Map.Entry<String, JsonNode> wanted : a.get("arrive").properties()) {
            await("an entry arrives", () -> {
                CompletableFuture<AvailabilityOfEntriesOfLedger> list =
                    admin.asyncGetListOfEntriesOfLedger(BookieId.parse(wanted.getKey()), id);
                try {
                    return list.get(20, TimeUnit.SECONDS).isEntryAvailable(wanted.getValue().asLong());
                } catch (ExecutionException e) {
                    return false;
                }
            });
        }
        return true;
    }

    /** Waits until bookies know an explicit LAC. */
    private boolean told(JsonNode a) throws Exception {
        long id = a.get("ledger").asLong();
        long lac = a.get("lac").asLong();
        for (BookieId bookie : ids(a.get("bookies"))) {
            await("an explicit LAC arrives", () -> {
                CompletableFuture<Long> answer = new CompletableFuture<>();
                placed(true).getClientCtx().getBookieClient().readLac(bookie, id, (code, ledger, stored, entry, context) ->
                    answer.complete(stored == null || stored.readableBytes() < 16 ? -1L : stored.getLong(8)), null);
                return answer.get(20, TimeUnit.SECONDS) == lac;
            });
        }
        return true;
    }

    /** Tells bookies an explicit LAC of a ledger, whatever entries there are; `told` waits for it. */
    private boolean tell(JsonNode a) throws Exception {
        long id = a.get("ledger").asLong();
        long lac = a.get("lac").asLong();
        byte[] password = bytes(a.get("password"));
        DigestManager digests = DigestManager.instantiate(
            id, password, BookKeeper.DigestType.toProtoDigestType(digest(a)), UnpooledByteBufAllocator.DEFAULT, false);
        for (BookieId bookie : ids(a.get("bookies"))) {
            placed(true).getClientCtx().getBookieClient().writeLac(bookie, id, DigestManager.generateMasterKey(password),
                lac, digests.computeDigestAndPackageForSendingLac(lac), (code, ledger, from, context) -> { }, null);
        }
        return told(a);
    }

    /** Copies what a bookie has of a ledger to other bookies: to those that were told, or to any that the policy takes. */
    private boolean repair(JsonNode a) throws Exception {
        BookKeeper client = a.path("anywhere").asBoolean() ? client() : placed(false);
        CompletableFuture<Integer> code = new CompletableFuture<>();
        Set<BookieId> bad = Set.of(BookieId.parse(a.get("bad").asText()));
        new BookKeeperAdmin(client, clientConf()).asyncRecoverBookieData(
            a.get("ledger").asLong(), bad, false, false, (answer, context) -> code.complete(answer), null);
        int answer = code.get(60, TimeUnit.SECONDS);
        if (answer != BKException.Code.OK) {
            throw BKException.create(answer);
        }
        return true;
    }

    /** Whether a bookie gives an entry, whatever the record says; nothing is fenced. */
    private boolean has(JsonNode a) throws Exception {
        CompletableFuture<Integer> code = new CompletableFuture<>();
        client().getClientCtx().getBookieClient().readEntry(BookieId.parse(a.get("bookie").asText()),
            a.get("ledger").asLong(), a.get("entry").asLong(),
            (answer, ledger, entry, body, context) -> code.complete(answer), null, BookieProtocol.FLAG_NONE);
        int answer = code.get(60, TimeUnit.SECONDS);
        if (answer == BKException.Code.NoSuchEntryException || answer == BKException.Code.NoSuchLedgerExistsException) {
            return false;
        }
        if (answer != BKException.Code.OK) {
            throw BKException.create(answer);
        }
        return true;
    }

    private static BookKeeper.DigestType digest(JsonNode a) {
        return BookKeeper.DigestType.valueOf(a.get("digest").asText());
    }

    private long create(JsonNode a) throws Exception {
        Map<String, byte[]> custom = new HashMap<>();
        a.path("custom").fields().forEachRemaining(e -> custom.put(e.getKey(), bytes(e.getValue())));
        int e = a.get("E").asInt();
        int w = a.get("W").asInt();
        int q = a.get("A").asInt();
        byte[] password = bytes(a.get("password"));
        if (a.hasNonNull("members")) {
            Placement.ensemble = ids(a.get("members"));
        }
        BookKeeper client = a.hasNonNull("members") ? placed(a.path("explicit").asBoolean()) : client();
        LedgerHandle ledger;
        if (a.hasNonNull("id")) {
            ledger = client.createLedgerAdv(a.get("id").asLong(), e, w, q, digest(a), password, custom);
        } else if (a.path("deferred").asBoolean()) {
            // what it was told of is confirmed once it is forced
            ledger = (LedgerHandle) client.newCreateLedgerOp().withEnsembleSize(e).withWriteQuorumSize(w)
                .withAckQuorumSize(q).withDigestType(digest(a).toApiDigestType()).withPassword(password)
                .withCustomMetadata(custom).withWriteFlags(WriteFlag.DEFERRED_SYNC).execute().get();
        } else {
            ledger = a.path("adv").asBoolean()
                ? client.createLedgerAdv(e, w, q, digest(a), password, custom)
                : client.createLedger(e, w, q, digest(a), password, custom);
        }
        writers.put(ledger.getId(), ledger);
        if (a.path("deferred").asBoolean() || a.path("adv").asBoolean() || a.hasNonNull("id")) {
            unordered.add(ledger.getId());
        }
        return ledger.getId();
    }

    /** Creates, writes and closes so many ledgers of as many entries, some at a time. */
    private int fill(JsonNode a) throws Exception {
        int entries = a.get("entries").asInt();
        byte[] payload = new byte[a.path("size").asInt(20)];
        BookKeeper writer = client();
        Semaphore room = new Semaphore(64);
        AtomicInteger failed = new AtomicInteger();
        for (int n = 0; n < a.get("count").asInt(); n++) {
            room.acquire();
            writer.newCreateLedgerOp().withEnsembleSize(a.get("E").asInt()).withWriteQuorumSize(a.get("W").asInt())
                .withAckQuorumSize(a.get("A").asInt()).withPassword(bytes(a.get("password"))).execute()
                .thenCompose(ledger -> {
                    CompletableFuture<?> last = CompletableFuture.completedFuture(null);
                    for (int entry = 0; entry < entries; entry++) {
                        last = ledger.appendAsync(payload);
                    }
                    return last.thenCompose(ignored -> ledger.closeAsync());
                })
                .whenComplete((done, error) -> {
                    if (error != null) {
                        failed.incrementAndGet();
                    }
                    room.release();
                });
        }
        room.acquire(64);
        return failed.get();
    }

    /** Adds entries and waits for all; {@code ids} fixes the order in which an Adv ledger gets them. */
    private Object add(JsonNode a) throws Exception {
        LedgerHandle ledger = writers.get(a.get("ledger").asLong());
        JsonNode sizes = a.get("sizes");
        JsonNode ids = a.path("ids");
        long next = ledger.getLastAddPushed() + 1;
        CountDownLatch answers = new CountDownLatch(sizes.size());
        Map<Long, Integer> failed = new TreeMap<>();
        List<Object> rows = new ArrayList<>();
        for (int i = 0; i < sizes.size(); i++) {
            long id = ids.isArray() ? ids.get(i).asLong() : next + i;
            byte[] payload = new byte[sizes.get(i).asInt()];
            new Random(ledger.getId() << 32 ^ id).nextBytes(payload);
            rows.add(List.of(id, payload.length, sha256(payload)));
            org.apache.bookkeeper.client.AsyncCallback.AddCallback answered = (code, handle, entry, context) -> {
                if (code != BKException.Code.OK) {
                    synchronized (failed) {
                        failed.put(id, code);
                    }
                }
                answers.countDown();
            };
            if (ids.isArray()) {
                ((org.apache.bookkeeper.client.LedgerHandleAdv) ledger).asyncAddEntry(id, payload, answered, null);
            } else {
                ledger.asyncAddEntry(payload, answered, null);
            }
        }
        for (int waited = 0; !answers.await(1, TimeUnit.SECONDS); waited++) {
            if (waited == 120) {
                throw new TimeoutException("ledger " + ledger.getId() + ", failed so far: " + failed);
            }
            remind(ledger);
        }
        if (!failed.isEmpty()) {
            throw new IOException("adds to ledger " + ledger.getId() + " failed: " + failed);
        }
        return rows;
    }

    /**
     * Lets the client look once more which adds it can answer. An entry that its quorum took while the ensemble changed is
     * answered with the next response only, and none may come: of a newcomer that is mute, or where the change replaced
     * nothing (https://github.com/apache/bookkeeper/issues/4261).
     */
    private static void remind(LedgerHandle ledger) throws ReflectiveOperationException {
        Method look = LedgerHandle.class.getDeclaredMethod("sendAddSuccessCallbacks");
        look.setAccessible(true);
        ClientContext context = (ClientContext) field(LedgerHandle.class, ledger, "clientCtx");
        context.getMainWorkerPool().executeOrdered(ledger.getId(), () -> {
            try {
                look.invoke(ledger);
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException(e);
            }
        });
    }

    private long close(long id) throws Exception {
        LedgerHandle ledger = writers.remove(id);
        ledger.close();
        return ledger.getLastAddConfirmed();
    }

    /** Reads every entry up to the last confirmed one; an entry is [length, SHA-256], or [null, why not]. */
    private Object read(JsonNode a) throws Exception {
        long id = a.get("ledger").asLong();
        Map<String, Object> found = new LinkedHashMap<>();
        List<Object> rows = new ArrayList<>();
        found.put("entries", rows);
        byte[] password = bytes(a.get("password"));
        try (LedgerHandle ledger = a.path("recovery").asBoolean()
                ? client().openLedger(id, digest(a), password)
                : client().openLedgerNoRecovery(id, digest(a), password)) {
            long last = ledger.getLastAddConfirmed();
            for (long first = 0; first <= last; first += 200) {
                long end = Math.min(first + 199, last);
                if (!readRange(ledger, first, end, rows)) {
                    for (long entry = first; entry <= end; entry++) {
                        readRange(ledger, entry, entry, rows);
                    }
                }
            }
            found.put("length", ledger.getLength());
        } catch (BKException e) {
            found.put("open_error", BKException.getMessage(e.getCode()));
        }
        return found;
    }

    /** Opens a ledger and keeps it open, as a reader does that goes on for long. */
    private boolean open(JsonNode a) throws Exception {
        long id = a.get("ledger").asLong();
        byte[] password = bytes(a.get("password"));
        readers.put(a.get("reader").asText(), a.get("recovery").asBoolean()
            ? client().openLedger(id, digest(a), password)
            : client().openLedgerNoRecovery(id, digest(a), password));
        return true;
    }

    /** Reads up to an entry what was opened before: null if all of it came, else why not; a read may have no end. */
    private String goOn(JsonNode a) throws Exception {
        CompletableFuture<Integer> code = new CompletableFuture<>();
        try {
            readers.get(a.get("reader").asText()).asyncReadEntries(0, a.get("last").asLong(),
                (answer, ledger, entries, context) -> code.complete(answer), null);
            int answer = code.get(20, TimeUnit.SECONDS);
            return answer == BKException.Code.OK ? null : BKException.getMessage(answer);
        } catch (TimeoutException e) {
            return "no answer";
        } catch (RuntimeException e) {
            return e.toString();
        }
    }

    /** Of a range all entries or none are added, of a single entry always one row. */
    private static boolean readRange(LedgerHandle ledger, long first, long last, List<Object> rows) throws Exception {
        List<Object> read = new ArrayList<>();
        try {
            for (Enumeration<LedgerEntry> e = ledger.readEntries(first, last); e.hasMoreElements();) {
                byte[] payload = e.nextElement().getEntry();
                read.add(List.of(payload.length, sha256(payload)));
            }
        } catch (BKException e) {
            if (first < last) {
                return false;
            }
            read.clear();
            List<Object> row = new ArrayList<>();
            row.add(null);
            row.add(BKException.getMessage(e.getCode()));
            read.add(row);
        }
        rows.addAll(read);
        return true;
    }

    /** Every ledger of the store: its path, its bytes, and what Java makes of them. */
    private Object ledgers() throws Exception {
        return MetadataDrivers.runFunctionWithLedgerManagerFactory(server("null"), factory -> {
            List<Object> rows = new ArrayList<>();
            try (LedgerManager manager = factory.newLedgerManager()) {
                List<Long> ids = new ArrayList<>();
                for (LedgerManager.LedgerRangeIterator i = manager.getLedgerRanges(30_000); i.hasNext();) {
                    ids.addAll(i.next().getLedgers());
                }
                for (long id : ids.stream().sorted().toList()) {
                    rows.add(ledger(manager, id));
                }
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
            return rows;
        });
    }

    private Object ledger(LedgerManager manager, long id) throws Exception {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("ledger", id);
        if (manager instanceof AbstractZkLedgerManager placed) {
            String path = placed.getLedgerPath(id);
            row.put("path", path);
            row.put("raw", base64(zk.getData(path, false, null)));
        }
        LedgerMetadata md;
        try {
            md = manager.readLedgerMetadata(id).get(20, TimeUnit.SECONDS).getValue();
        } catch (java.util.concurrent.ExecutionException e) {
            row.put("error", String.valueOf(e.getCause()));
            return row;
        }
        row.put("format", md.getMetadataFormatVersion());
        row.put("E", md.getEnsembleSize());
        row.put("W", md.getWriteQuorumSize());
        row.put("A", md.getAckQuorumSize());
        row.put("state", md.getState().name());
        row.put("last", md.isClosed() ? md.getLastEntryId() : null);
        row.put("length", md.isClosed() ? md.getLength() : null);
        row.put("digest", md.hasPassword() ? md.getDigestType().name() : null);
        row.put("password", md.hasPassword() ? base64(md.getPassword()) : null);
        row.put("ctime", md.getCtime());
        Map<String, String> custom = new TreeMap<>();
        md.getCustomMetadata().forEach((key, value) -> custom.put(key, base64(value)));
        row.put("custom", custom);
        List<Object> segments = new ArrayList<>();
        md.getAllEnsembles().forEach((first, members) ->
            segments.add(List.of(first, members.stream().map(Object::toString).toList())));
        row.put("segments", segments);
        return row;
    }

    // ------------------------------------------------------------------ the protocol

    private static String base64(byte[] data) {
        return Base64.getEncoder().encodeToString(data);
    }

    private static byte[] bytes(JsonNode text) {
        return Base64.getDecoder().decode(text.asText());
    }

    private static String sha256(byte[] data) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data));
    }

    private Object answer(JsonNode a) throws Exception {
        switch (a.get("op").asText()) {
            case "begin":
                LOG.goTo(new FileOutputStream(a.get("log").asText()));
                return true;
            case "end":
                return end();
            case "zk_start":
                return zkStart(Path.of(a.get("folder").asText()), a.get("root").asText());
            case "etcd":
                Etcd.register();
                etcd = a.get("uri").asText();
                return Etcd.init(etcd);
            case "zk_dump": {
                List<Object> nodes = new ArrayList<>();
                dump(a.get("path").asText(), nodes);
                return nodes;
            }
            case "zk_put":
                for (JsonNode node : a.get("nodes")) {
                    put(node.get("path").asText(), node.get("data").isNull() ? null : bytes(node.get("data")));
                }
                return true;
            case "zk_wipe":
                // a client of the lost cluster would know what a new one has to ask for
                if (client != null) {
                    client.close();
                    client = null;
                }
                for (JsonNode path : a.get("paths")) {
                    ZKUtil.deleteRecursive(zk, path.asText());
                }
                return true;
            case "zk_raise":
                raise(a.get("path").asText(), a.get("next").asInt());
                return true;
            case "format":
                return BookKeeperAdmin.initNewCluster(server(a.get("layout").asText()));
            case "bookie_start":
                return bookieStart(a);
            case "bookie_stop":
                return bookieStop(a.get("n").asInt());
            case "bookie_kill":
                return bookieKill(a.get("n").asInt());
            case "counters":
                return counters.get(a.get("n").asInt()).counted();
            case "create":
                return create(a);
            case "fill":
                return fill(a);
            case "add":
                return add(a);
            case "close":
                return close(a.get("ledger").asLong());
            case "send":
                return send(a);
            case "force":
                writers.get(a.get("ledger").asLong()).force().get(60, TimeUnit.SECONDS);
                return true;
            case "tell":
                return tell(a);
            case "told":
                return told(a);
            case "mute":
                muted.add(a.get("n").asInt());
                mute(server(a.get("n").asInt()));
                return true;
            case "instead":
                Placement.INSTEAD.put(BookieId.parse(a.get("old").asText()), BookieId.parse(a.get("new").asText()));
                return true;
            case "recover":
                placed(false).openLedger(a.get("ledger").asLong(), digest(a), bytes(a.get("password"))).close();
                return true;
            case "repair":
                return repair(a);
            case "audit":
                return Audits.each(server("null"), clientConf());
            case "audit_all":
                return Audits.all(server("null"), clientConf(), a.get("rounds").asInt());
            case "check":
                return Audits.ledgers(clientConf(), a.get("percent").asLong());
            case "lose":
                Losses.take(a.get("folder").asText(), a.get("ledger").asLong(), a.get("entries"));
                return null;
            case "has":
                return has(a);
            case "delete":
                placed(false).deleteLedger(a.get("ledger").asLong());
                return true;
            case "collect":
                return collect(a.get("n").asInt(), a.get("ledger").asLong(), 120);
            case "flush":
                for (int n : bookies.keySet()) {
                    ((BookieImpl) server(n).getBookie()).getLedgerStorage().flush();
                }
                return true;
            case "pass":
                return pass(a.get("ledger").asLong());
            case "read":
                return read(a);
            case "open":
                return open(a);
            case "go_on":
                return goOn(a);
            case "ledgers":
                return ledgers();
            case "new_ledger":
                try (LedgerHandle made = client().createLedger(1, 1, 1, BookKeeper.DigestType.CRC32C, new byte[0])) {
                    return made.getId();
                }
            default:
                throw new IllegalArgumentException("no such op: " + a.get("op"));
        }
    }

    /** Answers until stdin ends, so a parent that dies takes the cluster with it. */
    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setErr(new PrintStream(LOG, true));
        System.setOut(System.err);
        Driver driver = new Driver();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                JsonNode asked = JSON.readTree(line);
                answer.put("result", driver.answer(asked));
                driver = asked.get("op").asText().equals("end") ? new Driver() : driver;
            } catch (Exception e) {
                e.printStackTrace();
                answer.put("error", e.toString());
                answer.put("hangs", e instanceof TimeoutException);
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
