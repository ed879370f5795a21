import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.LedgerMetadataBuilder;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.discover.RegistrationManager;
import org.apache.bookkeeper.meta.LedgerIdGenerator;
import org.apache.bookkeeper.meta.LedgerManager;
import org.apache.bookkeeper.meta.LedgerManagerFactory;
import org.apache.bookkeeper.meta.LedgerUnderreplicationManager;
import org.apache.bookkeeper.meta.MetadataBookieDriver;
import org.apache.bookkeeper.meta.MetadataDrivers;
import org.apache.bookkeeper.meta.UnderreplicatedLedger;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.stats.NullStatsLogger;
import org.apache.bookkeeper.versioning.Version;
import org.apache.bookkeeper.versioning.Versioned;

/**
 * What a metadata driver of Java makes of a store, and what it writes there: BookKeeper's own, or Pulsar's.
 *
 * <p>A line of stdin is one JSON object: "op" and its arguments. It is answered by one line of stdout: {"result": ...} or
 * {"error": "..."}. Bytes travel as base64. "open" comes first, and may come again.
 */
public final class Metadata {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int ANSWER_S = 60;

    private MetadataBookieDriver driver;
    private RegistrationManager registrations;
    private LedgerManagerFactory factory;
    private LedgerManager ledgers;

    private boolean open(JsonNode a) throws Exception {
        close();
        ServerConfiguration conf = new ServerConfiguration();
        String uri = a.get("uri").asText();
        conf.setMetadataServiceUri(uri);
        conf.setZkTimeout(20_000);
        driver = MetadataDrivers.getBookieDriver(URI.create(uri));
        driver.initialize(conf, NullStatsLogger.INSTANCE);
        registrations = driver.createRegistrationManager();
        if (a.path("init").asBoolean() && !registrations.initNewCluster()) {
            throw new IllegalStateException("there is a cluster already");
        }
        factory = driver.getLedgerManagerFactory();
        ledgers = factory.newLedgerManager();
        return true;
    }

    private void close() throws Exception {
        for (AutoCloseable part : new AutoCloseable[] {ledgers, factory, registrations, driver}) {
            if (part != null) {
                part.close();
            }
        }
        ledgers = null;
        factory = null;
        registrations = null;
        driver = null;
    }

    /** Creates an open ledger, and closes it where a last entry is named. */
    private boolean create(JsonNode a) throws Exception {
        long id = a.get("ledger").asLong();
        List<BookieId> members = new ArrayList<>();
        a.get("members").forEach(m -> members.add(BookieId.parse(m.asText())));
        LedgerMetadata made = LedgerMetadataBuilder.create()
            .withId(id)
            .withEnsembleSize(members.size())
            .withWriteQuorumSize(a.get("W").asInt())
            .withAckQuorumSize(a.get("A").asInt())
            .withDigestType(DigestType.valueOf(a.get("digest").asText()))
            .withPassword(bytes(a.get("password")))
            .newEnsembleEntry(0L, members)
            .build();
        Versioned<LedgerMetadata> written = answer(ledgers.createLedgerMetadata(id, made));
        if (a.hasNonNull("last")) {
            LedgerMetadata closed = LedgerMetadataBuilder.from(made).withClosedState()
                .withLastEntryId(a.get("last").asLong()).withLength(a.get("length").asLong()).build();
            answer(ledgers.writeLedgerMetadata(id, closed, written.getVersion()));
        }
        return true;
    }

    private boolean remove(long id) throws Exception {
        answer(ledgers.removeLedgerMetadata(id, answer(ledgers.readLedgerMetadata(id)).getVersion()));
        return true;
    }

    /** Every ledger that a listing names, with what is read of it, in the order of the listing. */
    private Object list() throws Exception {
        List<Object> rows = new ArrayList<>();
        for (LedgerManager.LedgerRangeIterator i = ledgers.getLedgerRanges(30_000); i.hasNext();) {
            for (long id : i.next().getLedgers()) {
                rows.add(read(id));
            }
        }
        return rows;
    }

    private Object read(long id) throws Exception {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("ledger", id);
        LedgerMetadata found;
        try {
            found = answer(ledgers.readLedgerMetadata(id)).getValue();
        } catch (ExecutionException e) {
            row.put("error", String.valueOf(e.getCause()));
            return row;
        }
        row.put("state", found.getState().name());
        row.put("ensemble_size", found.getEnsembleSize());
        row.put("write_quorum", found.getWriteQuorumSize());
        row.put("ack_quorum", found.getAckQuorumSize());
        row.put("last_entry", found.getLastEntryId());
        row.put("length", found.getLength());
        row.put("digest", found.hasPassword() ? found.getDigestType().name() : null);
        row.put("password", found.hasPassword() ? Base64.getEncoder().encodeToString(found.getPassword()) : null);
        List<Object> segments = new ArrayList<>();
        found.getAllEnsembles().forEach((first, members) ->
            segments.add(List.of(first, members.stream().map(BookieId::toString).toList())));
        row.put("segments", segments);
        Map<String, String> custom = new HashMap<>();
        found.getCustomMetadata().forEach((k, v) -> custom.put(k, Base64.getEncoder().encodeToString(v)));
        row.put("custom", custom);
        return row;
    }

    private long nextId() throws Exception {
        CompletableFuture<Long> id = new CompletableFuture<>();
        try (LedgerIdGenerator generator = factory.newLedgerIdGenerator()) {
            generator.generateLedgerId((code, found) -> {
                if (code == BKException.Code.OK) {
                    id.complete(found);
                } else {
                    id.completeExceptionally(BKException.create(code));
                }
            });
            return answer(id);
        }
    }

    private boolean cookie(JsonNode a) throws Exception {
        BookieId id = BookieId.parse(a.get("bookie").asText());
        registrations.writeCookie(id, new Versioned<>(bytes(a.get("value")), Version.NEW));
        return true;
    }

    private String readCookie(String bookie) throws Exception {
        return Base64.getEncoder().encodeToString(registrations.readCookie(BookieId.parse(bookie)).getValue());
    }

    private boolean mark(JsonNode a) throws Exception {
        try (LedgerUnderreplicationManager marks = factory.newLedgerUnderreplicationManager()) {
            marks.markLedgerUnderreplicated(a.get("ledger").asLong(), a.get("bookie").asText());
        }
        return true;
    }

    private Object marks() throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        try (LedgerUnderreplicationManager marks = factory.newLedgerUnderreplicationManager()) {
            for (Iterator<UnderreplicatedLedger> i = marks.listLedgersToRereplicate(null); i.hasNext();) {
                UnderreplicatedLedger one = i.next();
                found.put(Long.toString(one.getLedgerId()), one.getReplicaList());
            }
        }
        return found;
    }

    private static <T> T answer(CompletableFuture<T> asked) throws Exception {
        return asked.get(ANSWER_S, TimeUnit.SECONDS);
    }

    private static byte[] bytes(JsonNode text) {
        return Base64.getDecoder().decode(text.asText());
    }

    private Object run(JsonNode a) throws Exception {
        return switch (a.get("op").asText()) {
            case "open" -> open(a);
            case "create" -> create(a);
            case "remove" -> remove(a.get("ledger").asLong());
            case "list" -> list();
            case "read" -> read(a.get("ledger").asLong());
            case "next_id" -> nextId();
            case "instance_id" -> registrations.getClusterInstanceId();
            case "cookie" -> cookie(a);
            case "read_cookie" -> readCookie(a.get("bookie").asText());
            case "mark" -> mark(a);
            case "marks" -> marks();
            default -> throw new IllegalArgumentException(a.get("op").asText());
        };
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // what libraries print is no answer
        Metadata metadata = new Metadata();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            Map<String, Object> said = new HashMap<>();
            try {
                said.put("result", metadata.run(JSON.readTree(line)));
            } catch (Exception e) {
                e.printStackTrace();
                said.put("error", e.toString());
            }
            answers.println(JSON.writeValueAsString(said));
            answers.flush();
        }
        System.exit(0); // threads of drivers would stay
    }
}
