import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.bookkeeper.bookie.storage.ldb.KeyValueStorage;
import org.apache.bookkeeper.bookie.storage.ldb.KeyValueStorageFactory.DbConfigType;
import org.apache.bookkeeper.bookie.storage.ldb.KeyValueStorageRocksDB;
import org.apache.bookkeeper.conf.ServerConfiguration;

/** What a bookie of DbLedgerStorage has of a ledger, taken out of its databases while it is stopped. */
final class Losses {
    private Losses() { }

    /** Takes out some entries, or where none are named all of them and the ledger itself. */
    static void take(String folder, long ledger, JsonNode entries) throws Exception {
        ServerConfiguration conf = new ServerConfiguration();
        try (KeyValueStorage locations = new KeyValueStorageRocksDB(
                folder, "locations", DbConfigType.EntryLocation, conf)) {
            List<byte[]> keys = new ArrayList<>();
            if (entries.isNull()) {
                try (KeyValueStorage.CloseableIterator<byte[]> all = locations.keys(key(ledger, 0), key(ledger + 1, 0))) {
                    while (all.hasNext()) {
                        keys.add(all.next());
                    }
                }
            }
            for (JsonNode entry : entries) {
                keys.add(key(ledger, entry.asLong()));
            }
            for (byte[] key : keys) {
                locations.delete(key);
            }
            locations.sync();
        }
        if (entries.isNull()) {
            try (KeyValueStorage ledgers = new KeyValueStorageRocksDB(
                    folder, "ledgers", DbConfigType.LedgerMetadata, conf)) {
                ledgers.delete(ByteBuffer.allocate(8).putLong(ledger).array());
                ledgers.sync();
            }
        }
    }

    private static byte[] key(long ledger, long entry) {
        return ByteBuffer.allocate(16).putLong(ledger).putLong(entry).array();
    }
}
