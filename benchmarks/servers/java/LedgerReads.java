import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeper.DigestType;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * BookKeeper's own client reading whole ledgers: {@code LedgerReads URI LEDGERS}, those from 0 on, with an empty password.
 *
 * <p>Digests are checked, as the client always does; 100 entries are asked for at a time, some ledgers at a time. A tenth
 * goes before that is not timed. Prints {"seconds", "cpu_s", "ledgers", "bytes"}.
 */
public final class LedgerReads {
    private static final int AT_ONCE = 100;
    private static final int ROOM = 8;

    public static void main(String[] args) throws Exception {
        int ledgers = Integer.parseInt(args[1]);
        BookKeeper client = new BookKeeper(new ClientConfiguration().setMetadataServiceUri(args[0]));
        AtomicLong bytes = new AtomicLong();
        read(client, ledgers / 10 + 1, bytes);
        bytes.set(0);
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long used = system.getProcessCpuTime();
        long began = System.nanoTime();
        long whole = read(client, ledgers, bytes);
        double seconds = (System.nanoTime() - began) / 1e9;
        double cpu = (system.getProcessCpuTime() - used) / 1e9;
        System.out.println("{\"seconds\": " + seconds + ", \"cpu_s\": " + cpu + ", \"ledgers\": " + whole
            + ", \"bytes\": " + bytes + "}");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static long read(BookKeeper client, int ledgers, AtomicLong bytes) throws InterruptedException {
        Semaphore room = new Semaphore(ROOM);
        AtomicLong whole = new AtomicLong();
        List<Thread> threads = new ArrayList<>();
        for (int n = 0; n < ledgers; n++) {
            room.acquire();
            long id = n;
            Thread thread = new Thread(() -> {
                try (ReadHandle ledger = client.openLedgerNoRecovery(id, DigestType.CRC32C, new byte[0])) {
                    long last = ledger.getLastAddConfirmed();
                    for (long first = 0; first <= last; first += AT_ONCE) {
                        try (var entries = ledger.read(first, Math.min(first + AT_ONCE - 1, last))) {
                            for (LedgerEntry entry : entries) {
                                bytes.addAndGet(entry.getLength());
                            }
                        }
                    }
                    whole.incrementAndGet();
                } catch (Exception failure) {
                    failure.printStackTrace();
                } finally {
                    room.release();
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return whole.get();
    }
}
