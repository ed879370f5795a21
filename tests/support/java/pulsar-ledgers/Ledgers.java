import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.protobuf.ByteString;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.mledger.Entry;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;
import org.apache.bookkeeper.mledger.ManagedLedgerFactoryConfig;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.apache.bookkeeper.mledger.impl.ManagedLedgerFactoryImpl;
import org.apache.bookkeeper.mledger.impl.ManagedLedgerImpl;
import org.apache.bookkeeper.mledger.impl.NullLedgerOffloader;
import org.apache.bookkeeper.mledger.proto.MLDataFormats.CompressionType;
import org.apache.bookkeeper.mledger.proto.MLDataFormats.ManagedLedgerInfo.LedgerInfo;
import org.apache.pulsar.broker.service.schema.SchemaStorageFormat;
import org.apache.pulsar.common.policies.data.OffloadPoliciesImpl;
import org.apache.pulsar.metadata.api.MetadataStoreConfig;
import org.apache.pulsar.metadata.api.extended.MetadataStoreExtended;

/**
 * Topics as Pulsar's brokers keep them: one for each way in which their records are compressed, with a subscription;
 * one that was ended, one trimmed, one offloaded, one deleted; and a schema. Prints what is true of them as one JSON object. Where topics
 * are named behind the servers and the ledgers root, these are read instead, and their entries printed.
 */
public final class Ledgers {
    private static final String NAMESPACE = "public/default/persistent/";

    private final MetadataStoreExtended store;
    private final BookKeeper client;
    private final Map<String, Object> truth = new LinkedHashMap<>();

    private Ledgers(String zookeeper, String root) throws Exception {
        MetadataStoreConfig config = MetadataStoreConfig.builder().build();
        store = MetadataStoreExtended.create("zk:" + zookeeper, config);
        ClientConfiguration of = new ClientConfiguration();
        of.setMetadataServiceUri("zk+hierarchical://" + zookeeper + root);
        client = BookKeeper.forConfig(of).build();
    }

    /** Says that it took a ledger elsewhere, and reads it where it is: a topic that was offloaded and not deleted yet. */
    private final class Offloader extends NullLedgerOffloader {
        @Override
        public String getOffloadDriverName() {
            return "elsewhere";
        }

        @Override
        public CompletableFuture<Void> offload(ReadHandle ledger, UUID id, Map<String, String> extra) {
            return CompletableFuture.completedFuture(null);
        }

        @Override
        public CompletableFuture<ReadHandle> readOffloaded(long ledger, UUID id, Map<String, String> driver) {
            return client.newOpenLedgerOp().withLedgerId(ledger).withRecovery(false).withPassword(config().getPassword())
                .withDigestType(DigestType.CRC32C).execute();
        }

        @Override
        public boolean isAppendable() {
            return true;
        }

        @Override
        public OffloadPoliciesImpl getOffloadPolicies() {
            return new OffloadPoliciesImpl();
        }
    }

    private static ManagedLedgerConfig config() {
        ManagedLedgerConfig config = new ManagedLedgerConfig();
        config.setEnsembleSize(3).setWriteQuorumSize(2).setAckQuorumSize(2);
        config.setMaxEntriesPerLedger(5).setMinimumRolloverTime(0, TimeUnit.SECONDS);
        config.setMetadataEnsembleSize(3).setMetadataWriteQuorumSize(3).setMetadataAckQuorumSize(2);
        config.setRetentionTime(0, TimeUnit.SECONDS);
        return config;
    }

    private static List<Map<String, Object>> listed(ManagedLedger topic) {
        List<Map<String, Object>> found = new ArrayList<>();
        for (LedgerInfo one : ((ManagedLedgerImpl) topic).getLedgersInfo().values()) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("ledger", one.getLedgerId());
            row.put("last_entry", one.hasEntries() ? one.getEntries() - 1 : null);
            row.put("length", one.hasSize() ? one.getSize() : null);
            found.add(row);
        }
        return found;
    }

    private static List<Position> write(ManagedLedger topic, int entries) throws Exception {
        List<Position> found = new ArrayList<>();
        for (int n = 0; n < entries; n++) {
            found.add(topic.addEntry(("entry " + n).getBytes(StandardCharsets.UTF_8)));
        }
        return found;
    }

    private void topics(CompressionType kind) throws Exception {
        ManagedLedgerFactoryConfig with = new ManagedLedgerFactoryConfig();
        with.setManagedLedgerInfoCompressionType(kind.name());
        with.setManagedCursorInfoCompressionType(kind.name());
        with.setManagedLedgerInfoCompressionThresholdInBytes(0);
        with.setManagedCursorInfoCompressionThresholdInBytes(0);
        // Never shut down: that would close the ledgers, and a cluster that is lost did not.
        ManagedLedgerFactoryImpl factory = new ManagedLedgerFactoryImpl(store, client, with);
        String name = NAMESPACE + "kept-" + kind.name().toLowerCase();
        ManagedLedger topic = factory.open(name, config());
        ManagedCursor cursor = topic.openCursor("subscription");
        List<Position> written = write(topic, 12);
        cursor.markDelete(written.get(1));
        Map<String, Object> said = new LinkedHashMap<>();
        said.put("ledgers", listed(topic));
        truth.put(name, said);
        if (kind == CompressionType.NONE) {
            others(factory);
        }
    }

    private void others(ManagedLedgerFactoryImpl factory) throws Exception {
        ManagedLedger ended = factory.open(NAMESPACE + "ended", config());
        ended.openCursor("subscription");
        write(ended, 3);
        Position last = ended.terminate();
        Map<String, Object> said = new LinkedHashMap<>();
        said.put("ledgers", List.of(Map.of("ledger", last.getLedgerId(), "last_entry", last.getEntryId())));
        truth.put(NAMESPACE + "ended", said);

        ManagedLedger trimmed = factory.open(NAMESPACE + "trimmed", config());
        ManagedCursor cursor = trimmed.openCursor("subscription");
        List<Position> written = write(trimmed, 12);
        List<Map<String, Object>> before = listed(trimmed);
        cursor.markDelete(written.get(6));
        CompletableFuture<?> done = new CompletableFuture<>();
        trimmed.trimConsumedLedgersInBackground(done);
        done.get(60, TimeUnit.SECONDS);
        said = new LinkedHashMap<>();
        said.put("before", before);
        said.put("ledgers", listed(trimmed));
        truth.put(NAMESPACE + "trimmed", said);

        ManagedLedgerConfig elsewhere = config();
        elsewhere.setLedgerOffloader(new Offloader());
        ManagedLedger offloaded = factory.open(NAMESPACE + "offloaded", elsewhere);
        offloaded.openCursor("subscription");
        List<Position> kept = write(offloaded, 12);
        offloaded.offloadPrefix(kept.get(11));
        said = new LinkedHashMap<>();
        said.put("ledgers", listed(offloaded));
        said.put("offloaded", ((ManagedLedgerImpl) offloaded).getLedgersInfo().values().stream()
            .filter(one -> one.hasOffloadContext() && one.getOffloadContext().getComplete()).count());
        truth.put(NAMESPACE + "offloaded", said);

        ManagedLedger deleted = factory.open(NAMESPACE + "deleted", config());
        write(deleted, 2);
        said = new LinkedHashMap<>();
        said.put("before", listed(deleted));
        deleted.delete();
        truth.put(NAMESPACE + "deleted", said);
    }

    private void schema() throws Exception {
        LedgerHandle ledger = client.createLedger(3, 3, 2, BookKeeper.DigestType.CRC32C, new byte[0]);
        ledger.addEntry("a schema".getBytes(StandardCharsets.UTF_8));
        ledger.close();
        SchemaStorageFormat.IndexEntry entry = SchemaStorageFormat.IndexEntry.newBuilder()
            .setVersion(0)
            .setHash(ByteString.copyFromUtf8("hash"))
            .setPosition(SchemaStorageFormat.PositionInfo.newBuilder().setLedgerId(ledger.getId()).setEntryId(0))
            .build();
        byte[] raw = SchemaStorageFormat.SchemaLocator.newBuilder().setInfo(entry).addIndex(entry).build().toByteArray();
        store.put("/schemas/public/default/kept-none", raw, Optional.of(-1L)).get(60, TimeUnit.SECONDS);
        truth.put("schema", ledger.getId());
    }

    private void unreferenced() throws Exception {
        LedgerHandle ledger = client.createLedger(3, 3, 2, BookKeeper.DigestType.CRC32C, new byte[0]);
        ledger.addEntry("of nobody".getBytes(StandardCharsets.UTF_8));
        ledger.close();
        truth.put("unreferenced", ledger.getId());
    }

    /** Opens topics as a broker does that starts anew, and reads all that they have. */
    private Map<String, Object> read(List<String> names) throws Exception {
        ManagedLedgerFactoryImpl factory = new ManagedLedgerFactoryImpl(store, client);
        for (String name : names) {
            List<String> found = new ArrayList<>();
            ManagedLedgerConfig with = config();
            with.setLedgerOffloader(new Offloader());
            ManagedLedger topic = factory.open(name, with);
            ManagedCursor cursor = topic.newNonDurableCursor(PositionFactory.EARLIEST);
            while (cursor.hasMoreEntries()) {
                for (Entry entry : cursor.readEntries(100)) {
                    found.add(new String(entry.getData(), StandardCharsets.UTF_8));
                    entry.release();
                }
            }
            truth.put(name, found);
        }
        return truth;
    }

    public static void main(String[] args) throws Exception {
        Ledgers made = new Ledgers(args[0], args[1]);
        if (args.length > 2) {
            System.out.println(new ObjectMapper().writeValueAsString(made.read(List.of(args).subList(2, args.length))));
            System.out.flush();
            Runtime.getRuntime().halt(0);
        }
        for (CompressionType kind : CompressionType.values()) {
            made.topics(kind);
        }
        made.schema();
        made.unreferenced();
        System.out.println(new ObjectMapper().writeValueAsString(made.truth));
        System.out.flush();
        // As a broker that is killed: nothing is closed.
        Runtime.getRuntime().halt(0);
    }
}
