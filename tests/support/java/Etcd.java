import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.bookie.BookieException;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.conf.AbstractConfiguration;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.discover.BookieServiceInfo;
import org.apache.bookkeeper.discover.RegistrationClient;
import org.apache.bookkeeper.discover.RegistrationManager;
import org.apache.bookkeeper.meta.LayoutManager;
import org.apache.bookkeeper.meta.LedgerAuditorManager;
import org.apache.bookkeeper.meta.LedgerIdGenerator;
import org.apache.bookkeeper.meta.LedgerLayout;
import org.apache.bookkeeper.meta.LedgerManager;
import org.apache.bookkeeper.meta.LedgerManagerFactory;
import org.apache.bookkeeper.meta.LedgerMetadataSerDe;
import org.apache.bookkeeper.meta.LedgerUnderreplicationManager;
import org.apache.bookkeeper.meta.MetadataBookieDriver;
import org.apache.bookkeeper.meta.MetadataClientDriver;
import org.apache.bookkeeper.meta.MetadataDrivers;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.proto.BookkeeperInternalCallbacks.GenericCallback;
import org.apache.bookkeeper.proto.BookkeeperInternalCallbacks.LedgerMetadataListener;
import org.apache.bookkeeper.proto.BookkeeperInternalCallbacks.Processor;
import org.apache.bookkeeper.stats.StatsLogger;
import org.apache.bookkeeper.versioning.LongVersion;
import org.apache.bookkeeper.versioning.Version;
import org.apache.bookkeeper.versioning.Versioned;
import org.apache.zookeeper.AsyncCallback;

/**
 * Drivers of BookKeeper for etcd, whose own driver is published nowhere: the same keys, the same transactions, and as
 * there no marks, no locks and no auditor. Spoken over etcd's JSON gateway; what it watches it asks for again and again.
 *
 * <p>Keys and operations: docs/formats/etcd.md and docs/formats/store-keys.md.
 */
final class Etcd {
    static final String SCHEME = "etcd";
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HttpClient HTTP = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(10)).build();
    private static final String FACTORY = "org.apache.bookkeeper.metadata.etcd.EtcdLedgerManagerFactory";
    private static final int BUCKETS = 128;
    private static final int BUCKET_BITS = 56;
    private static final int PAGE = 100;
    private static final int TTL_S = 20;
    /** The first and, excluded, the last ledger that a listing asks for. */
    private static final UUID LOWEST = new UUID(0, 0);
    private static final UUID HIGHEST = new UUID(0, Long.MAX_VALUE);

    private final String endpoint;
    private final String root;

    private Etcd(String uri) {
        URI parsed = URI.create(uri);
        endpoint = "http://" + parsed.getAuthority();
        root = parsed.getPath();
    }

    static void register() {
        MetadataDrivers.registerBookieDriver(SCHEME, BookieDriver.class, true);
        MetadataDrivers.registerClientDriver(SCHEME, ClientDriver.class, true);
    }

    /** Makes what an empty cluster has, once. */
    static boolean init(String uri) throws IOException {
        Etcd etcd = new Etcd(uri);
        List<ObjectNode> puts = new ArrayList<>();
        puts.add(etcd.put("", new byte[0], 0));
        puts.add(etcd.put("/layout", new LedgerLayout(FACTORY, 0).serialize(), 0));
        puts.add(etcd.put("/instanceid", UUID.randomUUID().toString().getBytes(StandardCharsets.UTF_8), 0));
        for (String folder : List.of("/cookies", "/bookies", "/bookies/writable", "/bookies/readonly", "/ledgers",
                "/buckets", "/underreplication")) {
            puts.add(etcd.put(folder, new byte[0], 0));
        }
        return etcd.commit(etcd.compare("", "CREATE", 0), puts, List.of()).path("succeeded").asBoolean();
    }

    // ------------------------------------------------------------------ requests

    private static String base64(byte[] data) {
        return Base64.getEncoder().encodeToString(data);
    }

    private String key(String below) {
        return base64((root + below).getBytes(StandardCharsets.UTF_8));
    }

    private JsonNode ask(String method, JsonNode body) throws IOException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(endpoint + "/v3/" + method))
            .timeout(Duration.ofSeconds(20))
            .POST(HttpRequest.BodyPublishers.ofByteArray(JSON.writeValueAsBytes(body))).build();
        try {
            HttpResponse<byte[]> answer = HTTP.send(request, HttpResponse.BodyHandlers.ofByteArray());
            if (answer.statusCode() != 200) {
                throw new IOException(method + ": " + new String(answer.body(), StandardCharsets.UTF_8));
            }
            return JSON.readTree(answer.body());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IOException(e);
        }
    }

    private ObjectNode put(String below, byte[] value, long lease) {
        ObjectNode operation = JSON.createObjectNode();
        ObjectNode put = operation.putObject("requestPut").put("key", key(below)).put("value", base64(value));
        if (lease != 0) {
            put.put("lease", Long.toString(lease));
        }
        return operation;
    }

    private ObjectNode delete(String below) {
        ObjectNode operation = JSON.createObjectNode();
        operation.putObject("requestDeleteRange").put("key", key(below));
        return operation;
    }

    private ObjectNode compare(String below, String target, long revision) {
        ObjectNode compare = JSON.createObjectNode().put("key", key(below)).put("target", target).put("result", "EQUAL");
        return compare.put(target.equals("CREATE") ? "createRevision" : "modRevision", Long.toString(revision));
    }

    private JsonNode commit(ObjectNode compare, List<ObjectNode> success, List<ObjectNode> failure) throws IOException {
        ObjectNode body = JSON.createObjectNode();
        body.putArray("compare").add(compare);
        ArrayNode then = body.putArray("success");
        success.forEach(then::add);
        ArrayNode otherwise = body.putArray("failure");
        failure.forEach(otherwise::add);
        return ask("kv/txn", body);
    }

    /** The key with its value, revision and lease; null: there is none. */
    private JsonNode get(String below) throws IOException {
        JsonNode kv = ask("kv/range", JSON.createObjectNode().put("key", key(below))).path("kvs").path(0);
        return kv.has("key") ? kv : null;
    }

    private Set<String> names(String folder) throws IOException {
        ObjectNode body = JSON.createObjectNode().put("key", key(folder + "/")).put("keys_only", true);
        body.put("range_end", key(folder + "0"));
        Set<String> names = new HashSet<>();
        for (JsonNode kv : ask("kv/range", body).path("kvs")) {
            names.add(text(kv).substring((root + folder + "/").length()));
        }
        return names;
    }

    private static String text(JsonNode kv) {
        return new String(Base64.getDecoder().decode(kv.get("key").asText()), StandardCharsets.UTF_8);
    }

    private static byte[] value(JsonNode kv) {
        return Base64.getDecoder().decode(kv.path("value").asText(""));
    }

    private static String ledgerKey(UUID id) {
        return "/ledgers/" + id;
    }

    private static String ledgerKey(long ledger) {
        return ledgerKey(new UUID(0, ledger));
    }

    // ------------------------------------------------------------------ ledgers

    private static final class Ranges implements LedgerManager.LedgerRangeIterator {
        private final Etcd etcd;
        private String from;
        private LedgerManager.LedgerRange next;

        Ranges(Etcd etcd) {
            this.etcd = etcd;
            from = etcd.key(ledgerKey(LOWEST));
        }

        @Override
        public boolean hasNext() throws IOException {
            while (next == null && from != null) {
                ObjectNode body = JSON.createObjectNode().put("key", from).put("keys_only", true).put("limit", PAGE);
                body.put("range_end", etcd.key(ledgerKey(HIGHEST)));
                JsonNode answer = etcd.ask("kv/range", body);
                Set<Long> ids = new LinkedHashSet<>();
                String last = null;
                for (JsonNode kv : answer.path("kvs")) {
                    last = text(kv);
                    ids.add(UUID.fromString(last.substring(last.lastIndexOf('/') + 1)).getLeastSignificantBits());
                }
                from = answer.path("more").asBoolean() && last != null
                    ? base64((last + "\0").getBytes(StandardCharsets.UTF_8)) : null;
                next = ids.isEmpty() ? null : new LedgerManager.LedgerRange(ids);
            }
            return next != null;
        }

        @Override
        public LedgerManager.LedgerRange next() {
            LedgerManager.LedgerRange given = next;
            next = null;
            return given;
        }
    }

    private static final class Ledgers implements LedgerManager {
        private final Etcd etcd;
        private final LedgerMetadataSerDe records = new LedgerMetadataSerDe();

        Ledgers(Etcd etcd) {
            this.etcd = etcd;
        }

        private interface Step<T> {
            T take() throws Exception;
        }

        private static <T> CompletableFuture<T> run(Step<T> step) {
            CompletableFuture<T> promise = new CompletableFuture<>();
            POOL.execute(() -> {
                try {
                    promise.complete(step.take());
                } catch (BKException e) {
                    promise.completeExceptionally(e);
                } catch (Exception e) {
                    promise.completeExceptionally(new BKException.MetaStoreException(e));
                }
            });
            return promise;
        }

        @Override
        public CompletableFuture<Versioned<LedgerMetadata>> createLedgerMetadata(long id, LedgerMetadata metadata) {
            return run(() -> {
                ObjectNode put = etcd.put(ledgerKey(id), records.serialize(metadata), 0);
                JsonNode done = etcd.commit(etcd.compare(ledgerKey(id), "CREATE", 0), List.of(put), List.of());
                if (!done.path("succeeded").asBoolean()) {
                    throw new BKException.BKLedgerExistException();
                }
                return new Versioned<>(metadata, new LongVersion(done.path("header").path("revision").asLong()));
            });
        }

        @Override
        public CompletableFuture<Void> removeLedgerMetadata(long id, Version version) {
            return run(() -> {
                if (version instanceof LongVersion known) {
                    JsonNode done = etcd.commit(etcd.compare(ledgerKey(id), "MOD", known.getLongVersion()),
                        List.of(etcd.delete(ledgerKey(id))), List.of());
                    if (!done.path("succeeded").asBoolean()) {
                        throw new BKException.BKMetadataVersionException();
                    }
                    return null;
                }
                if (etcd.get(ledgerKey(id)) == null) {
                    throw new BKException.BKNoSuchLedgerExistsException();
                }
                etcd.ask("kv/deleterange", JSON.createObjectNode().put("key", etcd.key(ledgerKey(id))));
                return null;
            });
        }

        @Override
        public CompletableFuture<Versioned<LedgerMetadata>> readLedgerMetadata(long id) {
            return run(() -> {
                JsonNode kv = etcd.get(ledgerKey(id));
                if (kv == null) {
                    throw new BKException.BKNoSuchLedgerExistsException();
                }
                return new Versioned<>(records.parseConfig(value(kv), id, Optional.empty()),
                    new LongVersion(kv.get("mod_revision").asLong()));
            });
        }

        @Override
        public CompletableFuture<Versioned<LedgerMetadata>> writeLedgerMetadata(
                long id, LedgerMetadata metadata, Version version) {
            return run(() -> {
                ObjectNode put = etcd.put(ledgerKey(id), records.serialize(metadata), 0);
                long expected = ((LongVersion) version).getLongVersion();
                JsonNode done = etcd.commit(etcd.compare(ledgerKey(id), "MOD", expected), List.of(put), List.of());
                if (!done.path("succeeded").asBoolean()) {
                    throw new BKException.BKMetadataVersionException();
                }
                return new Versioned<>(metadata, new LongVersion(done.path("header").path("revision").asLong()));
            });
        }

        @Override
        public void registerLedgerMetadataListener(long id, LedgerMetadataListener listener) { }

        @Override
        public void unregisterLedgerMetadataListener(long id, LedgerMetadataListener listener) { }

        @Override
        public void asyncProcessLedgers(
                Processor<Long> processor, AsyncCallback.VoidCallback end, Object context, int good, int bad) {
            throw new UnsupportedOperationException();
        }

        @Override
        public LedgerRangeIterator getLedgerRanges(long timeoutMs) {
            return new Ranges(etcd);
        }

        @Override
        public void close() { }
    }

    /** Daemons, so that no client that is left open keeps the process. */
    private static final ScheduledExecutorService POOL = Executors.newScheduledThreadPool(8, task -> {
        Thread thread = new Thread(task, "etcd");
        thread.setDaemon(true);
        return thread;
    });

    private static final class Ids implements LedgerIdGenerator {
        private final Etcd etcd;
        private int bucket = ThreadLocalRandom.current().nextInt(BUCKETS);

        Ids(Etcd etcd) {
            this.etcd = etcd;
        }

        @Override
        public synchronized void generateLedgerId(GenericCallback<Long> callback) {
            int chosen = bucket;
            bucket = (bucket + 1) % BUCKETS;
            POOL.execute(() -> {
                String key = etcd.key(String.format("/buckets/%03d", chosen));
                try {
                    ObjectNode put = JSON.createObjectNode().put("key", key).put("value", "").put("prev_kv", true);
                    JsonNode before = etcd.ask("kv/put", put).path("prev_kv");
                    long number = before.path("version").asLong() + 1;
                    callback.operationComplete(BKException.Code.OK, ((long) chosen << BUCKET_BITS) + number);
                } catch (IOException e) {
                    callback.operationComplete(BKException.Code.MetaStoreException, null);
                }
            });
        }

        @Override
        public void close() { }
    }

    private static final class Factory implements LedgerManagerFactory {
        private final Etcd etcd;

        Factory(Etcd etcd) {
            this.etcd = etcd;
        }

        @Override
        public int getCurrentVersion() {
            return 0;
        }

        @Override
        public LedgerManagerFactory initialize(AbstractConfiguration conf, LayoutManager layouts, int version) {
            return this;
        }

        @Override
        public void close() { }

        @Override
        public LedgerIdGenerator newLedgerIdGenerator() {
            return new Ids(etcd);
        }

        @Override
        public LedgerManager newLedgerManager() {
            return new Ledgers(etcd);
        }

        @Override
        public LedgerUnderreplicationManager newLedgerUnderreplicationManager() {
            throw new UnsupportedOperationException();
        }

        @Override
        public LedgerAuditorManager newLedgerAuditorManager() {
            throw new UnsupportedOperationException();
        }

        @Override
        public void format(AbstractConfiguration<?> conf, LayoutManager layouts) {
            throw new UnsupportedOperationException();
        }

        @Override
        public boolean validateAndNukeExistingCluster(AbstractConfiguration<?> conf, LayoutManager layouts) {
            throw new UnsupportedOperationException();
        }
    }

    private static final class Layouts implements LayoutManager {
        private final Etcd etcd;

        Layouts(Etcd etcd) {
            this.etcd = etcd;
        }

        @Override
        public LedgerLayout readLedgerLayout() throws IOException {
            JsonNode kv = etcd.get("/layout");
            return kv == null ? null : LedgerLayout.parseLayout(value(kv));
        }

        @Override
        public void storeLedgerLayout(LedgerLayout layout) {
            throw new UnsupportedOperationException();
        }

        @Override
        public void deleteLedgerLayout() {
            throw new UnsupportedOperationException();
        }
    }

    // ------------------------------------------------------------------ bookies

    /** Public: made by reflection. */
    public static final class BookieDriver implements MetadataBookieDriver {
        private Etcd etcd;

        @Override
        public MetadataBookieDriver initialize(ServerConfiguration conf, StatsLogger stats) {
            etcd = new Etcd(conf.getMetadataServiceUriUnchecked());
            return this;
        }

        @Override
        public String getScheme() {
            return SCHEME;
        }

        @Override
        public RegistrationManager createRegistrationManager() {
            return new Registrations(etcd);
        }

        @Override
        public LedgerManagerFactory getLedgerManagerFactory() {
            return new Factory(etcd);
        }

        @Override
        public LayoutManager getLayoutManager() {
            return new Layouts(etcd);
        }

        @Override
        public void close() { }
    }

    private static final class Registrations implements RegistrationManager {
        private final Etcd etcd;
        private long lease;
        private boolean closed;

        Registrations(Etcd etcd) {
            this.etcd = etcd;
        }

        private static String folder(boolean readOnly) {
            return readOnly ? "/bookies/readonly" : "/bookies/writable";
        }

        private synchronized long lease() throws IOException {
            if (lease == 0) {
                lease = etcd.ask("lease/grant", JSON.createObjectNode().put("TTL", TTL_S)).get("ID").asLong();
                POOL.scheduleWithFixedDelay(this::keep, 1, 2, TimeUnit.SECONDS);
            }
            return lease;
        }

        private void keep() {
            try {
                synchronized (this) {
                    if (closed) {
                        throw new IllegalStateException("ends this task");
                    }
                }
                etcd.ask("lease/keepalive", JSON.createObjectNode().put("ID", Long.toString(lease)));
            } catch (IOException e) {
                return; // until the next time
            }
        }

        @Override
        public void close() {
            try {
                synchronized (this) {
                    if (closed || lease == 0) {
                        closed = true;
                        return;
                    }
                    closed = true;
                }
                etcd.ask("lease/revoke", JSON.createObjectNode().put("ID", Long.toString(lease)));
            } catch (IOException e) {
                return; // it ends by itself
            }
        }

        @Override
        public String getClusterInstanceId() throws BookieException {
            try {
                return new String(value(etcd.get("/instanceid")), StandardCharsets.UTF_8);
            } catch (IOException e) {
                throw new BookieException.MetadataStoreException(e);
            }
        }

        @Override
        public void registerBookie(BookieId id, boolean readOnly, BookieServiceInfo info) throws BookieException {
            try {
                etcd.ask("kv/put", etcd.put(folder(readOnly) + "/" + id, new byte[0], lease()).get("requestPut"));
                if (readOnly) {
                    unregisterBookie(id, false);
                }
            } catch (IOException e) {
                throw new BookieException.MetadataStoreException(e);
            }
        }

        @Override
        public void unregisterBookie(BookieId id, boolean readOnly) throws BookieException {
            try {
                ObjectNode body = JSON.createObjectNode().put("key", etcd.key(folder(readOnly) + "/" + id));
                etcd.ask("kv/deleterange", body);
            } catch (IOException e) {
                throw new BookieException.MetadataStoreException(e);
            }
        }

        @Override
        public boolean isBookieRegistered(BookieId id) throws BookieException {
            try {
                return etcd.get(folder(false) + "/" + id) != null || etcd.get(folder(true) + "/" + id) != null;
            } catch (IOException e) {
                throw new BookieException.MetadataStoreException(e);
            }
        }

        @Override
        public void writeCookie(BookieId id, Versioned<byte[]> cookie) throws BookieException {
            try {
                String key = "/cookies/" + id;
                ObjectNode compare = cookie.getVersion() instanceof LongVersion known
                    ? etcd.compare(key, "MOD", known.getLongVersion()) : etcd.compare(key, "CREATE", 0);
                JsonNode done = etcd.commit(compare, List.of(etcd.put(key, cookie.getValue(), 0)), List.of());
                if (!done.path("succeeded").asBoolean()) {
                    throw new BookieException.MetadataStoreException("conflict on the cookie of " + id);
                }
            } catch (IOException e) {
                throw new BookieException.MetadataStoreException(e);
            }
        }

        @Override
        public Versioned<byte[]> readCookie(BookieId id) throws BookieException {
            try {
                JsonNode kv = etcd.get("/cookies/" + id);
                if (kv == null) {
                    throw new BookieException.CookieNotFoundException(id.toString());
                }
                return new Versioned<>(value(kv), new LongVersion(kv.get("mod_revision").asLong()));
            } catch (IOException e) {
                throw new BookieException.MetadataStoreException(e);
            }
        }

        @Override
        public void removeCookie(BookieId id, Version version) {
            throw new UnsupportedOperationException();
        }

        @Override
        public boolean prepareFormat() {
            throw new UnsupportedOperationException();
        }

        @Override
        public boolean initNewCluster() {
            throw new UnsupportedOperationException();
        }

        @Override
        public boolean format() {
            throw new UnsupportedOperationException();
        }

        @Override
        public boolean nukeExistingCluster() {
            throw new UnsupportedOperationException();
        }

        @Override
        public void addRegistrationListener(RegistrationListener listener) { }
    }

    // ------------------------------------------------------------------ clients

    /** Public: made by reflection. */
    public static final class ClientDriver implements MetadataClientDriver {
        private Etcd etcd;
        private Members members;

        @Override
        public MetadataClientDriver initialize(
                ClientConfiguration conf, ScheduledExecutorService scheduler, StatsLogger stats, Optional<Object> context) {
            etcd = new Etcd(conf.getMetadataServiceUriUnchecked());
            members = new Members(etcd);
            return this;
        }

        @Override
        public String getScheme() {
            return SCHEME;
        }

        @Override
        public RegistrationClient getRegistrationClient() {
            return members;
        }

        @Override
        public LedgerManagerFactory getLedgerManagerFactory() {
            return new Factory(etcd);
        }

        @Override
        public LayoutManager getLayoutManager() {
            return new Layouts(etcd);
        }

        @Override
        public void close() {
            members.close();
        }

        @Override
        public void setSessionStateListener(SessionStateListener listener) { }
    }

    private static final class Members implements RegistrationClient {
        private final Etcd etcd;
        private final Map<RegistrationListener, String> listeners = new ConcurrentHashMap<>();
        private final Map<RegistrationListener, Set<BookieId>> told = new ConcurrentHashMap<>();
        private volatile boolean closed;

        Members(Etcd etcd) {
            this.etcd = etcd;
            POOL.scheduleWithFixedDelay(this::look, 300, 300, TimeUnit.MILLISECONDS);
        }

        private void look() {
            if (closed) {
                throw new IllegalStateException("ends this task");
            }
            for (Map.Entry<RegistrationListener, String> listener : listeners.entrySet()) {
                try {
                    tell(listener.getKey(), read(listener.getValue()));
                } catch (IOException e) {
                    return; // until the next time
                }
            }
        }

        private void tell(RegistrationListener listener, Versioned<Set<BookieId>> now) {
            if (!now.getValue().equals(told.put(listener, now.getValue()))) {
                listener.onBookiesChanged(now);
            }
        }

        private Versioned<Set<BookieId>> read(String folder) throws IOException {
            Set<BookieId> ids = new HashSet<>();
            for (String name : etcd.names(folder)) {
                ids.add(BookieId.parse(name));
            }
            return new Versioned<>(ids, new LongVersion(System.nanoTime()));
        }

        @Override
        public void close() {
            closed = true;
        }

        @Override
        public CompletableFuture<Versioned<Set<BookieId>>> getWritableBookies() {
            return Ledgers.run(() -> read("/bookies/writable"));
        }

        @Override
        public CompletableFuture<Versioned<Set<BookieId>>> getAllBookies() {
            return CompletableFuture.failedFuture(new BKException.BKIllegalOpException());
        }

        @Override
        public CompletableFuture<Versioned<Set<BookieId>>> getReadOnlyBookies() {
            return Ledgers.run(() -> read("/bookies/readonly"));
        }

        private CompletableFuture<Void> watch(RegistrationListener listener, String folder) {
            return Ledgers.run(() -> {
                tell(listener, read(folder));
                listeners.put(listener, folder);
                return null;
            });
        }

        @Override
        public CompletableFuture<Void> watchWritableBookies(RegistrationListener listener) {
            return watch(listener, "/bookies/writable");
        }

        @Override
        public void unwatchWritableBookies(RegistrationListener listener) {
            listeners.remove(listener);
        }

        @Override
        public CompletableFuture<Void> watchReadOnlyBookies(RegistrationListener listener) {
            return watch(listener, "/bookies/readonly");
        }

        @Override
        public void unwatchReadOnlyBookies(RegistrationListener listener) {
            listeners.remove(listener);
        }
    }
}
