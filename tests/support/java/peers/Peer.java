import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.common.component.LifecycleComponentStack;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.server.Main;
import org.apache.bookkeeper.server.conf.BookieConfiguration;

/**
 * Bookies and the client of any release from 4.14 on, by what all of them offer.
 *
 * <p>A line of stdin is one JSON object: "op" and its arguments. It is answered by one line of stdout: {"result": ...} or
 * {"error": "..."}. Bytes travel as base64. The one argument of the program is the store's URI.
 */
public final class Peer {
    private static final ObjectMapper JSON = new ObjectMapper();
    /** Seconds that no test lasts: what happens on its own after this long never happens. */
    private static final int NEVER_S = 24 * 3600;

    private final String uri;
    private BookKeeper client;
    private final Map<String, LifecycleComponentStack> bookies = new HashMap<>();
    private final Map<Long, LedgerHandle> writers = new HashMap<>();

    private Peer(String uri) {
        this.uri = uri;
    }

    private ServerConfiguration settings() {
        ServerConfiguration conf = new ServerConfiguration();
        conf.setMetadataServiceUri(uri);
        conf.setZkTimeout(60_000);
        return conf;
    }

    /** Starts a bookie; its folders are below one of its name, relative to the working directory. */
    private boolean start(JsonNode a) throws Exception {
        String id = a.get("bookie").asText();
        ServerConfiguration conf = settings();
        conf.setBookieId(id);
        try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            conf.setBookiePort(free.getLocalPort());
        }
        conf.setAdvertisedAddress("127.0.0.1");
        conf.setAllowLoopback(true);
        conf.setJournalDirName(id + "/journal");
        conf.setLedgerDirNames(new String[] {id + "/ledgers"});
        conf.setLedgerStorageClass("org.apache.bookkeeper.bookie." + a.get("storage").asText());
        conf.setGcWaitTime(NEVER_S * 1000L);
        conf.setMinorCompactionInterval(2L * NEVER_S);
        conf.setMajorCompactionInterval(4L * NEVER_S);
        conf.setAutoRecoveryDaemonEnabled(false);
        conf.setDiskUsageThreshold(0.99f);
        conf.setDiskUsageWarnThreshold(0.99f);
        conf.setDiskLowWaterMarkUsageThreshold(0.99f);
        conf.setEntryLogFilePreAllocationEnabled(false);
        conf.setEntryLogSizeLimit(1 << 20);
        conf.setMinUsableSizeForEntryLogCreation(1 << 20);
        conf.setProperty("journalPreAllocSizeMB", 1);
        conf.setProperty("dbStorage_writeCacheMaxSizeMb", 8);
        conf.setProperty("dbStorage_readAheadCacheMaxSizeMb", 4);
        conf.setProperty("dbStorage_rocksDB_blockCacheSize", 4 << 20);
        conf.setHttpServerEnabled(false);
        LifecycleComponentStack stack = Main.buildBookieServer(new BookieConfiguration(conf));
        stack.start();
        bookies.put(id, stack);
        return true;
    }

    private boolean stop(String id) {
        bookies.remove(id).close();
        return true;
    }

    private BookKeeper client() throws Exception {
        if (client == null) {
            ClientConfiguration conf = new ClientConfiguration();
            conf.setMetadataServiceUri(uri);
            conf.setZkTimeout(60_000);
            client = new BookKeeper(conf);
        }
        return client;
    }

    private long create(JsonNode a) throws Exception {
        Map<String, byte[]> custom = new HashMap<>();
        a.path("custom").fields().forEachRemaining(e -> custom.put(e.getKey(), bytes(e.getValue())));
        LedgerHandle made = client().createLedger(a.get("E").asInt(), a.get("W").asInt(), a.get("A").asInt(),
            digest(a), bytes(a.get("password")), custom);
        writers.put(made.getId(), made);
        return made.getId();
    }

    private boolean add(JsonNode a) throws Exception {
        for (JsonNode entry : a.get("entries")) {
            writers.get(a.get("ledger").asLong()).addEntry(bytes(entry));
        }
        return true;
    }

    private boolean close(long ledger) throws Exception {
        writers.get(ledger).close();
        return true;
    }

    /** What the client makes of a record, and the entries that it reads by it. */
    private Object read(JsonNode a) throws Exception {
        long id = a.get("ledger").asLong();
        byte[] password = bytes(a.get("password"));
        try (LedgerHandle ledger = a.path("recover").asBoolean()
                ? client().openLedger(id, digest(a), password)
                : client().openLedgerNoRecovery(id, digest(a), password)) {
            LedgerMetadata found = ledger.getLedgerMetadata();
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("ledger", id);
            row.put("state", found.getState().name());
            row.put("ensemble_size", found.getEnsembleSize());
            row.put("write_quorum", found.getWriteQuorumSize());
            row.put("ack_quorum", found.getAckQuorumSize());
            row.put("last_entry", found.getLastEntryId());
            row.put("length", found.getLength());
            row.put("digest", found.hasPassword() ? found.getDigestType().name() : null);
            List<Object> segments = new ArrayList<>();
            found.getAllEnsembles().forEach((first, members) ->
                segments.add(List.of(first, members.stream().map(BookieId::toString).toList())));
            row.put("segments", segments);
            Map<String, String> custom = new HashMap<>();
            found.getCustomMetadata().forEach((k, v) -> custom.put(k, Base64.getEncoder().encodeToString(v)));
            row.put("custom", custom);
            List<String> entries = new ArrayList<>();
            long last = ledger.getLastAddConfirmed();
            if (last >= 0) {
                for (Enumeration<LedgerEntry> i = ledger.readEntries(0, last); i.hasMoreElements();) {
                    entries.add(Base64.getEncoder().encodeToString(i.nextElement().getEntry()));
                }
            }
            return Map.of("record", row, "entries", entries);
        }
    }

    private static BookKeeper.DigestType digest(JsonNode a) {
        return BookKeeper.DigestType.valueOf(a.get("digest").asText());
    }

    private static byte[] bytes(JsonNode text) {
        return Base64.getDecoder().decode(text.asText());
    }

    private Object run(JsonNode a) throws Exception {
        return switch (a.get("op").asText()) {
            case "format" -> BookKeeperAdmin.initNewCluster(settings());
            case "start" -> start(a);
            case "stop" -> stop(a.get("bookie").asText());
            case "create" -> create(a);
            case "add" -> add(a);
            case "close" -> close(a.get("ledger").asLong());
            case "read" -> read(a);
            default -> throw new IllegalArgumentException(a.get("op").asText());
        };
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // what libraries print is no answer
        Peer peer = new Peer(arguments[0]);
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            Map<String, Object> said = new HashMap<>();
            try {
                said.put("result", peer.run(JSON.readTree(line)));
            } catch (Exception e) {
                e.printStackTrace();
                said.put("error", e.toString());
            }
            answers.println(JSON.writeValueAsString(said));
            answers.flush();
        }
        Runtime.getRuntime().halt(0); // threads of bookies would stay
    }
}
