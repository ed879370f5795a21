import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerChecker;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.meta.LedgerManager;
import org.apache.bookkeeper.meta.LedgerUnderreplicationManager;
import org.apache.bookkeeper.meta.MetadataDrivers;
import org.apache.bookkeeper.proto.BookkeeperInternalCallbacks.Processor;
import org.apache.bookkeeper.replication.AuditorStats;
import org.apache.bookkeeper.stats.NullStatsLogger;
import org.apache.zookeeper.AsyncCallback.VoidCallback;

/**
 * BookKeeper's own checks of replicas and of placement, of all ledgers at once or of each alone.
 *
 * <p>What the checks say is in gauges that are set anew for each range of ledgers; of one ledger they say what the check
 * thinks of it.
 */
final class Audits {
    private static final String PACKAGE = "org.apache.bookkeeper.replication.";

    private Audits() { }

    /** Every ledger alone: for each that a gauge is raised for, or that a check fails for, what is said. */
    static Map<String, Object> each(ServerConfiguration conf, ClientConfiguration clientConf) throws Exception {
        return with(conf, clientConf, (manager, marks, admin) -> {
            Map<String, Object> found = new LinkedHashMap<>();
            for (long id : list(manager)) {
                List<String> said = check(conf, admin, only(manager, Set.of(id)), marks);
                if (!said.isEmpty()) {
                    found.put(Long.toString(id), said);
                }
            }
            return found;
        });
    }

    /** All ledgers at once: seconds that the check of replicas takes, and what the gauges say in the end. */
    static Map<String, Object> all(ServerConfiguration conf, ClientConfiguration clientConf, int rounds) throws Exception {
        return with(conf, clientConf, (manager, marks, admin) -> {
            List<Double> seconds = new ArrayList<>();
            List<String> said = List.of();
            for (int round = 0; round < rounds; round++) {
                long begin = System.nanoTime();
                said = checkReplicas(conf, admin, manager, marks);
                seconds.add((System.nanoTime() - begin) / 1e9);
            }
            Map<String, Object> found = new LinkedHashMap<>();
            found.put("seconds", seconds);
            found.put("said", said);
            return found;
        });
    }

    /** The ledgers of which the auditor's check of all ledgers would mark a fragment, reading so many percent of entries. */
    static List<Long> ledgers(ClientConfiguration clientConf, long percent) throws Exception {
        List<Long> found = new ArrayList<>();
        try (BookKeeper client = BookKeeper.forConfig(clientConf).build();
                BookKeeperAdmin admin = new BookKeeperAdmin(client, NullStatsLogger.INSTANCE, clientConf)) {
            LedgerChecker checker = new LedgerChecker(client);
            for (long id : admin.listLedgers()) {
                CompletableFuture<Boolean> bad = new CompletableFuture<>();
                try (LedgerHandle handle = admin.openLedgerNoRecovery(id)) {
                    checker.checkLedger(handle, (rc, fragments) -> bad.complete(!fragments.isEmpty()), percent);
                    if (bad.get(60, TimeUnit.SECONDS)) {
                        found.add(id);
                    }
                }
            }
        }
        return found;
    }

    private interface Use {
        Map<String, Object> run(LedgerManager manager, LedgerUnderreplicationManager marks, BookKeeperAdmin admin)
            throws Exception;
    }

    private static Map<String, Object> with(ServerConfiguration conf, ClientConfiguration clientConf, Use use)
            throws Exception {
        return MetadataDrivers.runFunctionWithLedgerManagerFactory(conf, factory -> {
            try (LedgerManager manager = factory.newLedgerManager();
                    LedgerUnderreplicationManager marks = factory.newLedgerUnderreplicationManager();
                    BookKeeper client = BookKeeper.forConfig(clientConf).build();
                    BookKeeperAdmin admin = new BookKeeperAdmin(client, NullStatsLogger.INSTANCE, clientConf)) {
                return use.run(manager, marks, admin);
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        });
    }

    private static Set<Long> list(LedgerManager manager) throws IOException {
        Set<Long> ids = new LinkedHashSet<>();
        for (LedgerManager.LedgerRangeIterator ranges = manager.getLedgerRanges(30_000); ranges.hasNext();) {
            ids.addAll(ranges.next().getLedgers());
        }
        return ids;
    }

    private static List<String> check(ServerConfiguration conf, BookKeeperAdmin admin, LedgerManager manager,
            LedgerUnderreplicationManager marks) throws Exception {
        List<String> said = new ArrayList<>(checkReplicas(conf, admin, manager, marks));
        Object task = make("AuditorPlacementPolicyCheckTask", conf, admin, manager, marks, stats());
        String failed = run(task, "placementPolicyCheck");
        if (failed != null) {
            said.add("placement failed");
        }
        if (count(task, "getNumOfLedgersFoundNotAdheringInPlacementPolicyCheck") > 0) {
            said.add("placement");
        }
        if (count(task, "getNumOfLedgersFoundSoftlyAdheringInPlacementPolicyCheck") > 0) {
            said.add("placement, soft");
        }
        return said;
    }

    private static List<String> checkReplicas(ServerConfiguration conf, BookKeeperAdmin admin, LedgerManager manager,
            LedgerUnderreplicationManager marks) throws Exception {
        AuditorStats stats = stats();
        Object task = make("AuditorReplicasCheckTask", conf, admin, manager, marks, stats);
        List<String> said = new ArrayList<>();
        // The class runs the check and then sets the gauges; the method that only checks says whether it failed.
        String failed = run(task, "replicasCheck");
        if (failed != null) {
            said.add("replicas failed");
        }
        for (String[] gauge : new String[][] {
                {"numLedgersFoundHavingNoReplicaOfAnEntry", "none"},
                {"numLedgersFoundHavingLessThanAQReplicasOfAnEntry", "below ack quorum"},
                {"numLedgersFoundHavingLessThanWQReplicasOfAnEntry", "below write quorum"}}) {
            java.lang.reflect.Field field = task.getClass().getDeclaredField(gauge[0]);
            field.setAccessible(true);
            if (((java.util.concurrent.atomic.AtomicInteger) field.get(task)).get() > 0) {
                said.add(gauge[1]);
            }
        }
        return said;
    }

    private static AuditorStats stats() {
        return new AuditorStats(NullStatsLogger.INSTANCE);
    }

    private static Object make(String name, Object... parts) throws Exception {
        Constructor<?> constructor = Class.forName(PACKAGE + name).getDeclaredConstructors()[0];
        constructor.setAccessible(true);
        // conf, stats, admin, manager, marks, who is told that the auditor shall end, who is told that it is at work
        BiConsumer<Object, Object> busy = (has, failed) -> { };
        return constructor.newInstance(parts[0], parts[4], parts[1], parts[2], parts[3], null, busy);
    }

    /** Runs a check, and returns why it failed. */
    private static String run(Object task, String name) throws Exception {
        Method method = task.getClass().getDeclaredMethod(name);
        method.setAccessible(true);
        try {
            method.invoke(task);
            return null;
        } catch (InvocationTargetException e) {
            return String.valueOf(e.getCause());
        }
    }

    private static int count(Object task, String name) throws Exception {
        return ((java.util.concurrent.atomic.AtomicInteger) task.getClass().getMethod(name).invoke(task)).get();
    }

    /** A store of which only some ledgers are seen. */
    private static LedgerManager only(LedgerManager manager, Set<Long> ids) {
        return (LedgerManager) Proxy.newProxyInstance(Audits.class.getClassLoader(), new Class<?>[] {LedgerManager.class},
            (proxy, method, arguments) -> {
                switch (method.getName()) {
                    case "getLedgerRanges":
                        return ranges(ids);
                    case "asyncProcessLedgers":
                        process(ids, arguments);
                        return null;
                    default:
                        return method.invoke(manager, arguments);
                }
            });
    }

    private static LedgerManager.LedgerRangeIterator ranges(Set<Long> ids) {
        Iterator<LedgerManager.LedgerRange> one = List.of(new LedgerManager.LedgerRange(new java.util.HashSet<>(ids))).iterator();
        return new LedgerManager.LedgerRangeIterator() {
            @Override
            public boolean hasNext() {
                return one.hasNext();
            }

            @Override
            public LedgerManager.LedgerRange next() {
                return one.next();
            }
        };
    }

    @SuppressWarnings("unchecked")
    private static void process(Set<Long> ids, Object[] arguments) {
        VoidCallback end = (VoidCallback) arguments[1];
        int code = (int) arguments[3];
        for (long id : ids) {
            CompletableFuture<Integer> answer = new CompletableFuture<>();
            ((Processor<Long>) arguments[0]).process(id, (rc, path, context) -> answer.complete(rc));
            int rc = answer.orTimeout(60, TimeUnit.SECONDS).exceptionally(e -> BKException.Code.TimeoutException).join();
            code = rc == BKException.Code.OK ? code : (int) arguments[4];
        }
        end.processResult(code, null, arguments[2]);
    }
}
