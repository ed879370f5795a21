import com.fasterxml.jackson.databind.ObjectMapper;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyPairGenerator;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.api.LastConfirmedAndEntry;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.impl.LedgerEntriesImpl;
import org.apache.bookkeeper.client.impl.LedgerEntryImpl;
import org.apache.bookkeeper.mledger.LedgerOffloader;
import org.apache.bookkeeper.mledger.impl.NullLedgerOffloader;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.client.admin.LongRunningProcessStatus;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.EncryptionKeyInfo;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.common.policies.data.ClusterData;
import org.apache.pulsar.common.policies.data.OffloadPoliciesImpl;
import org.apache.pulsar.common.policies.data.PersistentTopicInternalStats;
import org.apache.pulsar.common.protocol.schema.PostSchemaPayload;
import org.apache.pulsar.common.policies.data.TenantInfo;

/**
 * A broker that topics are written, read, compacted, offloaded and deleted through; ``Broker ZOOKEEPER ROOT FOLDER``.
 *
 * <p>It prints what is true as one JSON object; where the folder has files of an earlier one, it goes on with what the
 * store has, and prints an empty object. Then it answers each line with one more:
 *
 * <pre>
 * read   every topic is loaded anew: what is read of each, and of each subscription
 * more   messages are written to a topic that there was, and to a new one: their ledgers
 * shapes messages of every shape are written to a topic, sealed ones to another: what a consumer reads, and the ledgers
 * grow   two more topics, and more messages in all that this has made, each in a way of its own: how many each has
 * </pre>
 *
 * <p>An offloaded ledger is kept in the folder, and deleted from the bookies by the broker.
 */
public final class Broker {
    private static final String NAMESPACE = "public/default";
    private static final int ENTRIES = 12;
    private static final String FOLLOWER = "follower";
    private static final int PATIENCE = 180;
    private static final int FOLLOWED = 7;
    private static final int FOLLOWED_YOUNG = 3;

    private static final List<String> TOPICS =
        List.of("kept", "offloaded", "compacted", "delayed", "followed", "truncated", "parted", "ended");

    private static final String GROWS = "grows-";

    /** Topics whose subscription is read through: not that of delayed messages, which come in hours. */
    private static final List<String> SUBSCRIBED =
        List.of("kept", "offloaded", "compacted", "truncated", "parted-partition-0", "ended");

    private static final String FIELD = "{\"name\": \"f%d\", \"type\": [\"null\", \"string\"], \"default\": null}";

    private static Path elsewhere;

    /** An offloaded ledger. */
    private record Copy(long id, TreeMap<Long, byte[]> kept) implements ReadHandle {
        @Override
        public long getId() {
            return id;
        }

        @Override
        public CompletableFuture<Void> closeAsync() {
            return CompletableFuture.completedFuture(null);
        }

        @Override
        public CompletableFuture<LedgerEntries> readAsync(long first, long last) {
            List<LedgerEntry> found = new ArrayList<>();
            for (Map.Entry<Long, byte[]> one : kept.subMap(first, true, last, true).entrySet()) {
                ByteBuf raw = Unpooled.wrappedBuffer(one.getValue());
                found.add(LedgerEntryImpl.create(id, one.getKey(), one.getValue().length, raw));
            }
            return CompletableFuture.completedFuture(LedgerEntriesImpl.create(found));
        }

        @Override
        public CompletableFuture<LedgerEntries> readUnconfirmedAsync(long first, long last) {
            return readAsync(first, last);
        }

        @Override
        public CompletableFuture<Long> readLastAddConfirmedAsync() {
            return CompletableFuture.completedFuture(getLastAddConfirmed());
        }

        @Override
        public CompletableFuture<Long> tryReadLastAddConfirmedAsync() {
            return readLastAddConfirmedAsync();
        }

        @Override
        public long getLastAddConfirmed() {
            return kept.lastKey();
        }

        @Override
        public long getLength() {
            return kept.values().stream().mapToLong(raw -> raw.length).sum();
        }

        @Override
        public boolean isClosed() {
            return true;
        }

        @Override
        public CompletableFuture<LastConfirmedAndEntry> readLastAddConfirmedAndEntryAsync(long n, long ms, boolean all) {
            return CompletableFuture.failedFuture(new UnsupportedOperationException());
        }

        @Override
        public LedgerMetadata getLedgerMetadata() {
            return null;
        }
    }

    private static void keep(long ledger, TreeMap<Long, byte[]> kept) {
        try (DataOutputStream file = new DataOutputStream(Files.newOutputStream(elsewhere.resolve("" + ledger)))) {
            file.writeInt(kept.size());
            for (Map.Entry<Long, byte[]> one : kept.entrySet()) {
                file.writeLong(one.getKey());
                file.writeInt(one.getValue().length);
                file.write(one.getValue());
            }
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    private static TreeMap<Long, byte[]> readKept(long ledger) {
        TreeMap<Long, byte[]> kept = new TreeMap<>();
        try (DataInputStream file = new DataInputStream(Files.newInputStream(elsewhere.resolve("" + ledger)))) {
            for (int left = file.readInt(); left > 0; left--) {
                long entry = file.readLong();
                kept.put(entry, file.readNBytes(file.readInt()));
            }
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
        return kept;
    }

    /** Takes ledgers into files. */
    private static final class Offloader extends NullLedgerOffloader {
        @Override
        public String getOffloadDriverName() {
            return "elsewhere";
        }

        @Override
        public CompletableFuture<Void> offload(ReadHandle ledger, UUID id, Map<String, String> extra) {
            return ledger.readAsync(0, ledger.getLastAddConfirmed()).thenAccept(entries -> {
                TreeMap<Long, byte[]> kept = new TreeMap<>();
                entries.forEach(entry -> kept.put(entry.getEntryId(), entry.getEntryBytes()));
                entries.close();
                keep(ledger.getId(), kept);
            });
        }

        @Override
        public CompletableFuture<ReadHandle> readOffloaded(long ledger, UUID id, Map<String, String> driver) {
            return CompletableFuture.completedFuture(new Copy(ledger, readKept(ledger)));
        }

        @Override
        public boolean isAppendable() {
            return true;
        }

        @Override
        public OffloadPoliciesImpl getOffloadPolicies() {
            OffloadPoliciesImpl policies = new OffloadPoliciesImpl();
            policies.setManagedLedgerOffloadDeletionLagInMillis(0L);
            return policies;
        }
    }

    private final PulsarService broker;
    private final PulsarAdmin admin;
    private final PulsarClient client;
    private final Map<String, Object> truth = new LinkedHashMap<>();
    private final Map<String, Integer> grown = new LinkedHashMap<>();

    private Broker(String zookeeper, String root, boolean isNew) throws Exception {
        ServiceConfiguration config = new ServiceConfiguration();
        config.setMetadataStoreUrl("zk:" + zookeeper);
        config.setConfigurationMetadataStoreUrl("zk:" + zookeeper);
        config.setBookkeeperMetadataServiceUri("zk+hierarchical://" + zookeeper + root);
        config.setClusterName("here");
        config.setAdvertisedAddress("127.0.0.1");
        config.setBindAddress("127.0.0.1");
        config.setBrokerServicePort(Optional.of(0));
        config.setWebServicePort(Optional.of(0));
        config.setManagedLedgerDefaultEnsembleSize(3);
        config.setManagedLedgerDefaultWriteQuorum(2);
        config.setManagedLedgerDefaultAckQuorum(2);
        config.setManagedLedgerMaxEntriesPerLedger(5);
        config.setManagedLedgerMinLedgerRolloverTimeMinutes(0);
        config.setManagedLedgerMaxUnackedRangesToPersistInMetadataStore(0);
        // Records of topics and of cursors, each in its way, however short.
        config.setManagedLedgerInfoCompressionType("ZSTD");
        config.setManagedLedgerInfoCompressionThresholdInBytes(0);
        config.setManagedCursorInfoCompressionType("LZ4");
        config.setManagedCursorInfoCompressionThresholdInBytes(0);
        config.setBrokerDeleteInactiveTopicsEnabled(false);
        config.setDelayedDeliveryTrackerFactoryClassName(
            "org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory");
        config.setDelayedDeliveryMinIndexCountPerBucket(3);
        config.setDelayedDeliveryMaxIndexesPerBucketSnapshotSegment(5);
        config.setDelayedDeliveryMaxTimeStepPerBucketSnapshotSegmentSeconds(1);
        // A busy machine is no failure.
        config.setMetadataStoreSessionTimeoutMillis(PATIENCE * 1000);
        config.setMetadataStoreOperationTimeoutSeconds(PATIENCE);
        config.setTopicLoadTimeoutSeconds(PATIENCE);
        config.setBookkeeperClientTimeoutInSeconds(PATIENCE);
        config.setNumIOThreads(2);
        config.setNumHttpServerThreads(8);
        config.setNumOrderedExecutorThreads(2);
        config.setWebSocketServiceEnabled(false);
        broker = new PulsarService(config) {
            @Override
            public synchronized LedgerOffloader createManagedLedgerOffloader(OffloadPoliciesImpl policies) {
                return new Offloader();
            }
        };
        broker.start();
        admin = PulsarAdmin.builder().serviceHttpUrl(broker.getWebServiceAddress())
            .requestTimeout(PATIENCE, TimeUnit.SECONDS).readTimeout(PATIENCE, TimeUnit.SECONDS).build();
        if (isNew) {
            admin.clusters().createCluster("here", ClusterData.builder()
                .serviceUrl(broker.getWebServiceAddress()).brokerServiceUrl(broker.getBrokerServiceUrl()).build());
            admin.tenants().createTenant("public", TenantInfo.builder().allowedClusters(Set.of("here")).build());
            admin.namespaces().createNamespace(NAMESPACE, 4);
        }
        client = PulsarClient.builder().serviceUrl(broker.getBrokerServiceUrl())
            .operationTimeout(PATIENCE, TimeUnit.SECONDS).lookupTimeout(PATIENCE, TimeUnit.SECONDS).build();
    }

    private static String name(String topic) {
        return "persistent://" + NAMESPACE + "/" + topic;
    }

    private static void until(String what, Callable<Boolean> holds) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE);
        while (!holds.call()) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("in vain: " + what);
            }
            Thread.sleep(100);
        }
    }

    private List<MessageId> write(String topic, Schema<String> schema) throws Exception {
        return write(topic, schema, 0);
    }

    private List<MessageId> write(String topic, Schema<String> schema, int first) throws Exception {
        List<MessageId> found = new ArrayList<>();
        try (Producer<String> producer = client.newProducer(schema).topic(name(topic)).enableBatching(false)
            .sendTimeout(PATIENCE, TimeUnit.SECONDS).create()) {
            for (int n = first; n < first + ENTRIES; n++) {
                found.add(producer.newMessage().key("key " + n % 3).value("message " + n).send());
            }
        }
        return found;
    }

    private Consumer<String> subscribe(String topic) throws Exception {
        return client.newConsumer(Schema.STRING).topic(name(topic)).subscriptionName("subscription")
            .subscriptionType(SubscriptionType.Shared)
            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
    }

    private Consumer<String> follow(String topic) throws Exception {
        return client.newConsumer(Schema.STRING).topic(name(topic)).subscriptionName(FOLLOWER)
            .subscriptionType(SubscriptionType.Exclusive)
            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
    }

    private List<Long> listLedgers(String topic) throws Exception {
        PersistentTopicInternalStats stats = admin.topics().getInternalStats(name(topic));
        List<Long> found = new ArrayList<>();
        stats.ledgers.forEach(one -> found.add(one.ledgerId));
        return found;
    }

    private void writeTopics() throws Exception {
        // Kept by a subscription that acknowledged here and there: its state is a ledger of its own.
        try (Consumer<String> consumer = subscribe("kept")) {
            write("kept", Schema.STRING);
            for (int n = 0; n < ENTRIES; n++) {
                Message<String> message = consumer.receive(PATIENCE, TimeUnit.SECONDS);
                if (n % 2 == 1) {
                    consumer.acknowledge(message);
                }
            }
        }
        truth.put("kept", listLedgers("kept"));

        subscribe("offloaded").close();
        MessageId last = write("offloaded", Schema.STRING).get(ENTRIES - 1);
        List<Long> before = listLedgers("offloaded");
        admin.topics().triggerOffload(name("offloaded"), last);
        until("offloaded", () -> admin.topics().offloadStatus(name("offloaded")).getStatus()
            == LongRunningProcessStatus.Status.SUCCESS);
        // The broker deletes what it offloaded when it looks for what it may trim.
        until("deleted from the bookies", () -> {
            admin.topics().trimTopic(name("offloaded"));
            return admin.topics().getInternalStats(name("offloaded")).ledgers.stream().anyMatch(one -> one.offloaded)
                && isGone(before.get(0));
        });
        truth.put("offloaded", before);

        subscribe("compacted").close();
        write("compacted", Schema.STRING);
        admin.topics().triggerCompaction(name("compacted"));
        until("compacted", () -> admin.topics().compactionStatus(name("compacted")).status
            == LongRunningProcessStatus.Status.SUCCESS);
        truth.put("compacted_ledger", admin.topics().getInternalStats(name("compacted")).compactedLedger.ledgerId);

        try (Consumer<String> consumer = subscribe("delayed");
            Producer<String> producer = client.newProducer(Schema.STRING).topic(name("delayed")).enableBatching(false)
                .sendTimeout(PATIENCE, TimeUnit.SECONDS).create()) {
            for (int n = 0; n < ENTRIES; n++) {
                producer.newMessage().value("message " + n).deliverAfter(1 + n, TimeUnit.HOURS).send();
            }
            consumer.receive(2, TimeUnit.SECONDS);
        }

        writeFollowed("followed", FOLLOWED);

        subscribe("truncated").close();
        write("truncated", Schema.STRING);
        List<Long> full = listLedgers("truncated");
        admin.topics().truncate(name("truncated"));
        until("truncated", () -> isGone(full.get(0)));
        write("truncated", Schema.STRING);

        admin.topics().createPartitionedTopic(name("parted"), 1);
        subscribe("parted").close();
        write("parted", Schema.STRING);

        subscribe("ended").close();
        write("ended", Schema.STRING);
        admin.topics().terminateTopic(name("ended"));
        truth.put("ended", listLedgers("ended"));

        admin.topics().createNonPartitionedTopic(name("typed"));
        addSchema(1);
        addSchema(2);

        subscribe("deleted").close();
        write("deleted", Schema.STRING);
        truth.put("deleted", listLedgers("deleted"));
        admin.topics().delete(name("deleted"), true);
    }

    /** A follower acknowledges up to a message, which is stored in a ledger of its own. */
    private void writeFollowed(String topic, int followed) throws Exception {
        try (Consumer<String> consumer = follow(topic)) {
            write(topic, Schema.STRING);
            for (int n = 1; n < followed; n++) {
                consumer.receive(PATIENCE, TimeUnit.SECONDS);
            }
            consumer.acknowledgeCumulative(consumer.receive(PATIENCE, TimeUnit.SECONDS));
            until("stored", () -> {
                PersistentTopicInternalStats.CursorStats stats =
                    admin.topics().getInternalStats(name(topic)).cursors.get(FOLLOWER);
                return stats.cursorLedger != -1 && stats.cursorLedgerLastEntry >= 0;
            });
        }
    }

    /** A version of a schema, with as many fields. */
    private void addSchema(int fields) throws Exception {
        List<String> all = new ArrayList<>();
        for (int n = 0; n < fields; n++) {
            all.add(String.format(FIELD, n));
        }
        String record = "{\"type\": \"record\", \"name\": \"typed\", \"fields\": [" + String.join(",", all) + "]}";
        admin.schemas().createSchema(name("typed"), new PostSchemaPayload("AVRO", record, Map.of()));
    }

    private boolean isGone(long ledger) throws Exception {
        return broker.getBookKeeperClient().getLedgerManager().readLedgerMetadata(ledger)
            .handle((metadata, failure) -> failure != null).get(PATIENCE, TimeUnit.SECONDS);
    }

    private List<String> readAll(String topic) throws Exception {
        List<String> values = new ArrayList<>();
        try (Reader<String> reader = client.newReader(Schema.STRING).topic(name(topic))
            .startMessageId(MessageId.earliest).create()) {
            while (reader.hasMessageAvailable()) {
                values.add(reader.readNext(PATIENCE, TimeUnit.SECONDS).getValue());
            }
        }
        return values;
    }

    /** What a subscription has not acknowledged, in order; it stays so. */
    private List<String> listUnread(String topic, String subscription) throws Exception {
        long left = admin.topics().getStats(name(topic), true).getSubscriptions().get(subscription).getMsgBacklog();
        List<String> values = new ArrayList<>();
        try (Consumer<String> consumer = subscription.equals(FOLLOWER) ? follow(topic) : subscribe(topic)) {
            while (values.size() < left) {
                values.add(consumer.receive(PATIENCE, TimeUnit.SECONDS).getValue());
            }
        }
        return values;
    }

    private Map<String, Object> writeMore() throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        writeFollowed("young", FOLLOWED_YOUNG);
        addSchema(3);
        found.put("young", listLedgers("young"));
        List<Long> before = listLedgers("kept");
        write("kept", Schema.STRING, ENTRIES);
        List<Long> after = new ArrayList<>(listLedgers("kept"));
        after.removeAll(before);
        found.put("kept", after);
        subscribe("later").close();
        write("later", Schema.STRING);
        found.put("later", listLedgers("later"));
        return found;
    }

    /** Messages of a topic that grows: alone, in batches, of two producers in turn, of a named one, of many ledgers. */
    private void append(String topic, int shape, int first, int count) throws Exception {
        ProducerBuilder<String> builder = client.newProducer(Schema.STRING).topic(name(topic)).enableBatching(shape == 1)
            .sendTimeout(PATIENCE, TimeUnit.SECONDS);
        if (shape == 3) {
            builder.producerName("named");
        }
        try (Producer<String> producer = builder.create();
            Producer<String> second = shape == 2 ? builder.create() : null) {
            List<CompletableFuture<MessageId>> sent = new ArrayList<>();
            for (int n = first; n < first + count; n++) {
                Producer<String> sender = second != null && n % 2 == 1 ? second : producer;
                sent.add(sender.newMessage().value("message " + n).sendAsync());
                if (shape != 1) {
                    sent.get(sent.size() - 1).get(PATIENCE, TimeUnit.SECONDS);
                }
            }
            producer.flush();
            for (CompletableFuture<MessageId> one : sent) {
                one.get(PATIENCE, TimeUnit.SECONDS);
            }
        }
    }

    private Map<String, Object> grow() throws Exception {
        for (int n = 0; n < 2; n++) {
            String topic = GROWS + grown.size();
            subscribe(topic).close();
            grown.put(topic, 0);
        }
        for (String topic : List.copyOf(grown.keySet())) {
            int shape = Integer.parseInt(topic.substring(GROWS.length())) % 5;
            int count = shape == 4 ? 4 * ENTRIES : ENTRIES;
            append(topic, shape, grown.get(topic), count);
            grown.merge(topic, count, Integer::sum);
        }
        return new LinkedHashMap<>(grown);
    }

    private static final String SHAPES = "shapes";
    private static final String SEALED = "sealed";

    /** Alone and in batches, each compressed in each way, with all that a message may have; in chunks; without a value. */
    private Map<String, Object> writeShapes() throws Exception {
        for (String topic : List.of(SHAPES, SEALED)) {
            // Without a subscription the broker keeps nothing.
            client.newConsumer().topic(name(topic)).subscriptionName("subscription").subscribe().close();
        }
        for (CompressionType compression : CompressionType.values()) {
            for (boolean batched : new boolean[] {false, true}) {
                try (Producer<byte[]> producer = client.newProducer().topic(name(SHAPES)).compressionType(compression)
                    .enableBatching(batched).batchingMaxPublishDelay(1, TimeUnit.HOURS)
                    .sendTimeout(PATIENCE, TimeUnit.SECONDS).create()) {
                    List<CompletableFuture<MessageId>> sent = new ArrayList<>();
                    for (int n = 0; n < 3; n++) {
                        byte[] value = (compression + " " + n + " ").repeat(20 * n).getBytes(StandardCharsets.UTF_8);
                        TypedMessageBuilder<byte[]> message = producer.newMessage().value(n == 0 ? null : value);
                        if (n == 1) {
                            message.key("key \u00e9").property("one", "1").property("two \u00e9", "").eventTime(1234567890123L);
                        } else if (n == 2) {
                            message.keyBytes(new byte[] {0, (byte) 0xff}).orderingKey(new byte[] {1, 2});
                        }
                        sent.add(message.sendAsync());
                    }
                    producer.flush();
                    for (CompletableFuture<MessageId> one : sent) {
                        one.get(PATIENCE, TimeUnit.SECONDS);
                    }
                }
            }
        }
        try (Producer<byte[]> producer = client.newProducer().topic(name(SHAPES)).enableBatching(false)
            .enableChunking(true).chunkMaxMessageSize(100).sendTimeout(PATIENCE, TimeUnit.SECONDS).create()) {
            producer.newMessage().value("large ".repeat(60).getBytes(StandardCharsets.UTF_8)).send();
        }
        KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
        generator.initialize(2048);
        String pem = "-----BEGIN PUBLIC KEY-----\n"
            + Base64.getMimeEncoder().encodeToString(generator.generateKeyPair().getPublic().getEncoded())
            + "\n-----END PUBLIC KEY-----\n";
        CryptoKeyReader keys = new CryptoKeyReader() {
            @Override
            public EncryptionKeyInfo getPublicKey(String name, Map<String, String> more) {
                return new EncryptionKeyInfo(pem.getBytes(StandardCharsets.UTF_8), Map.of());
            }

            @Override
            public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> more) {
                throw new UnsupportedOperationException();
            }
        };
        try (Producer<byte[]> producer = client.newProducer().topic(name(SEALED)).addEncryptionKey("a key")
            .cryptoKeyReader(keys).sendTimeout(PATIENCE, TimeUnit.SECONDS).create()) {
            producer.newMessage().value("a secret".getBytes(StandardCharsets.UTF_8)).send();
        }
        Map<String, Object> found = new LinkedHashMap<>();
        for (String topic : List.of(SHAPES, SEALED)) {
            admin.topics().unload(name(topic));
            found.put(topic + " ledgers", listLedgers(topic));
        }
        List<Map<String, Object>> read = new ArrayList<>();
        try (Reader<byte[]> reader = client.newReader().topic(name(SHAPES)).startMessageId(MessageId.earliest).create()) {
            while (reader.hasMessageAvailable()) {
                read.add(describe(reader.readNext(PATIENCE, TimeUnit.SECONDS)));
            }
        }
        found.put(SHAPES, read);
        return found;
    }

    private static Map<String, Object> describe(Message<byte[]> message) {
        MessageIdAdv id = (MessageIdAdv) message.getMessageId();
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("ledger", Long.toString(id.getLedgerId()));
        found.put("entry", id.getEntryId());
        found.put("batch", id.getBatchIndex() < 0 ? null : id.getBatchIndex());
        found.put("publish_time", message.getPublishTime());
        found.put("event_time", message.getEventTime() == 0 ? null : message.getEventTime());
        found.put("producer", message.getProducerName());
        found.put("sequence", message.getSequenceId());
        found.put("key", message.hasKey() ? message.getKey() : null);
        found.put("properties", message.getProperties());
        byte[] value = message.getValue();
        found.put("payload", value == null ? null : Base64.getEncoder().encodeToString(value));
        return found;
    }

    private Map<String, Object> readTopics() throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        for (String topic : TOPICS) {
            admin.topics().unload(name(topic));
            found.put(topic, readAll(topic));
        }
        List<String> latest = new ArrayList<>();
        try (Reader<String> reader = client.newReader(Schema.STRING).topic(name("compacted")).readCompacted(true)
            .startMessageId(MessageId.earliest).create()) {
            while (reader.hasMessageAvailable()) {
                latest.add(reader.readNext(PATIENCE, TimeUnit.SECONDS).getValue());
            }
        }
        found.put("latest", latest);
        Map<String, Object> unread = new LinkedHashMap<>();
        for (String topic : SUBSCRIBED) {
            unread.put(topic, listUnread(topic, "subscription"));
        }
        found.put("unread", unread);
        found.put("followed left", listUnread("followed", FOLLOWER));
        Set<String> topics = Set.copyOf(admin.topics().getList(NAMESPACE));
        if (topics.contains(name("later"))) {
            admin.topics().unload(name("later"));
            found.put("later", readAll("later"));
            found.put("later subscriptions", admin.topics().getSubscriptions(name("later")));
        }
        if (topics.contains(name("young"))) {
            admin.topics().unload(name("young"));
            found.put("young", readAll("young"));
            found.put("young subscriptions", admin.topics().getSubscriptions(name("young")).stream().sorted().toList());
            found.put("young left", listUnread("young", FOLLOWER));
        }
        for (String topic : topics) {
            if (topic.startsWith(name(GROWS))) {
                admin.topics().unload(topic);
                found.put(topic.substring(name("").length()), readAll(topic.substring(name("").length())));
            }
        }
        found.put("topics", admin.topics().getList(NAMESPACE).stream().sorted().toList());
        found.put("partitions", admin.topics().getPartitionedTopicMetadata(name("parted")).partitions);
        Map<String, Object> schemas = new LinkedHashMap<>();
        for (String topic : TOPICS) {
            schemas.put(topic, admin.schemas().getSchemaInfo(name(topic)).getType().toString());
        }
        found.put("schemas", schemas);
        found.put("versions", admin.schemas().getAllSchemas(name("typed")).size());
        String typed = admin.schemas().getSchemaInfo(name("typed")).getSchemaDefinition();
        found.put("fields", new ObjectMapper().readTree(typed).get("fields").size());
        return found;
    }

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        try {
            elsewhere = Path.of(args[2]);
            boolean isNew = Files.notExists(elsewhere);
            Files.createDirectories(elsewhere);
            Broker made = new Broker(args[0], args[1], isNew);
            if (isNew) {
                made.writeTopics();
            }
            System.out.println(json.writeValueAsString(made.truth));
            System.out.flush();
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line; (line = lines.readLine()) != null;) {
                System.out.println(json.writeValueAsString(switch (line) {
                    case "more" -> made.writeMore();
                    case "grow" -> made.grow();
                    case "shapes" -> made.writeShapes();
                    default -> made.readTopics();
                }));
                System.out.flush();
            }
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        System.out.flush();
        // As a broker that is killed: nothing is closed.
        Runtime.getRuntime().halt(0);
    }
}
