import io.pravega.common.util.CompositeByteArraySegment;
import io.pravega.segmentstore.storage.DurableDataLog;
import io.pravega.segmentstore.storage.LogAddress;
import io.pravega.segmentstore.storage.impl.bookkeeper.BookKeeperConfig;
import io.pravega.segmentstore.storage.impl.bookkeeper.BookKeeperLogFactory;
import io.pravega.segmentstore.storage.impl.bookkeeper.DebugBookKeeperLogWrapper;
import io.pravega.segmentstore.storage.impl.bookkeeper.LedgerMetadata;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Logs of containers, written by the code of Pravega's segment store; ``Logs ZOOKEEPER NAMESPACE ROOT``.
 *
 * <p>Each log is opened again and again, which begins a ledger; one is truncated, and another is disabled. Prints the
 * ledgers of each as one JSON object.
 */
public final class Logs {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final int CONTAINERS = 3;

    private static LogAddress write(BookKeeperLogFactory factory, int container) throws Exception {
        try (DurableDataLog log = factory.createDurableDataLog(container)) {
            log.initialize(PATIENCE);
            LogAddress last = null;
            for (int n = 0; n < 5; n++) {
                byte[] raw = ("frame " + n).getBytes(StandardCharsets.UTF_8);
                last = log.append(new CompositeByteArraySegment(raw), PATIENCE).get();
            }
            return last;
        }
    }

    private static void truncate(BookKeeperLogFactory factory, int container, LogAddress until) throws Exception {
        try (DurableDataLog log = factory.createDurableDataLog(container)) {
            log.initialize(PATIENCE);
            log.truncate(until, PATIENCE).get();
        }
    }

    public static void main(String[] words) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.builder().connectString(words[0]).namespace(words[1])
            .retryPolicy(new ExponentialBackoffRetry(100, 5)).build();
        client.start();
        ScheduledExecutorService executor = Executors.newScheduledThreadPool(4);
        BookKeeperConfig config = BookKeeperConfig.builder()
            .with(BookKeeperConfig.ZK_ADDRESS, words[0])
            .with(BookKeeperConfig.BK_LEDGER_PATH, words[2])
            .with(BookKeeperConfig.BK_ENSEMBLE_SIZE, 3)
            .with(BookKeeperConfig.BK_WRITE_QUORUM_SIZE, 2)
            .with(BookKeeperConfig.BK_ACK_QUORUM_SIZE, 2)
            .build();
        List<String> found = new ArrayList<>();
        try (BookKeeperLogFactory factory = new BookKeeperLogFactory(config, client, executor)) {
            factory.initialize();
            for (int container = 0; container < CONTAINERS; container++) {
                LogAddress first = write(factory, container);
                write(factory, container);
                write(factory, container);
                if (container == 1) {
                    truncate(factory, container, first);
                }
                try (DebugBookKeeperLogWrapper log = factory.createDebugLogWrapper(container)) {
                    List<String> ledgers = new ArrayList<>();
                    for (LedgerMetadata ledger : log.fetchMetadata().getLedgers()) {
                        ledgers.add(Long.toString(ledger.getLedgerId()));
                    }
                    found.add("\"" + container + "\": [" + String.join(", ", ledgers) + "]");
                }
            }
        }
        System.out.println("{" + String.join(", ", found) + "}");
        System.exit(0);
    }
}
