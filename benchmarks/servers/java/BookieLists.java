import com.sun.management.OperatingSystemMXBean;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.channel.nio.NioEventLoopGroup;
import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.bookkeeper.common.util.OrderedExecutor;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.net.BookieSocketAddress;
import org.apache.bookkeeper.proto.BookieClient;
import org.apache.bookkeeper.proto.BookieClientImpl;
import org.apache.bookkeeper.stats.NullStatsLogger;

/**
 * BookKeeper's own client asking for lists of entries: {@code BookieLists LEDGERS REQUESTS IN-FLIGHT HOST:PORT...}.
 *
 * <p>Requests go to all bookies in turn, for ledgers 0 to LEDGERS - 1. A tenth goes before that is not timed. Prints
 * {"seconds", "cpu_s", "ledgers"}: how many were answered.
 */
public final class BookieLists {
    public static void main(String[] args) throws Exception {
        int ledgers = Integer.parseInt(args[0]);
        int requests = Integer.parseInt(args[1]);
        int inFlight = Integer.parseInt(args[2]);
        Map<BookieId, BookieSocketAddress> addresses = new HashMap<>();
        BookieId[] bookies = new BookieId[args.length - 3];
        for (int i = 0; i < bookies.length; i++) {
            bookies[i] = BookieId.parse(args[3 + i]);
            addresses.put(bookies[i], new BookieSocketAddress(args[3 + i]));
        }
        NioEventLoopGroup loops = new NioEventLoopGroup(2);
        OrderedExecutor workers = OrderedExecutor.newBuilder().name("workers").numThreads(2).build();
        ScheduledExecutorService timers = Executors.newSingleThreadScheduledExecutor();
        ClientConfiguration conf = new ClientConfiguration();
        BookieClient client = new BookieClientImpl(
            conf, loops, PooledByteBufAllocator.DEFAULT, workers, timers, NullStatsLogger.INSTANCE, addresses::get);
        ask(client, bookies, ledgers, requests / 10, inFlight);
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long used = system.getProcessCpuTime();
        long began = System.nanoTime();
        long answered = ask(client, bookies, ledgers, requests, inFlight);
        double seconds = (System.nanoTime() - began) / 1e9;
        double cpu = (system.getProcessCpuTime() - used) / 1e9;
        System.out.println("{\"seconds\": " + seconds + ", \"cpu_s\": " + cpu + ", \"ledgers\": " + answered + "}");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static long ask(BookieClient client, BookieId[] bookies, int ledgers, int requests, int inFlight)
            throws InterruptedException {
        Semaphore room = new Semaphore(inFlight);
        AtomicLong answered = new AtomicLong();
        for (int i = 0; i < requests; i++) {
            room.acquire();
            client.getListOfEntriesOfLedger(bookies[i % bookies.length], i / bookies.length % ledgers)
                .whenComplete((list, error) -> {
                    if (error == null && list.getTotalNumOfAvailableEntries() > 0) {
                        answered.incrementAndGet();
                    }
                    room.release();
                });
        }
        room.acquire(inFlight);
        return answered.get();
    }
}
