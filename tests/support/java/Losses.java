import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import org.apache.bookkeeper.bookie.storage.ldb.KeyValueStorage;
import org.apache.bookkeeper.bookie.storage.ldb.KeyValueStorageFactory.DbConfigType;
import org.apache.bookkeeper.bookie.storage.ldb.KeyValueStorageRocksDB;
import org.apache.bookkeeper.conf.ServerConfiguration;

/**
 * What a bookie of DbLedgerStorage has of a ledger, taken out of its databases and its logs while it is stopped.
 *
 * <p>Out of the logs, too: a bookie reads ahead there, whatever its index says, and gives what it read.
 */
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
                byte[] location = locations.get(key);
                if (location != null) {
                    blot(folder, ByteBuffer.wrap(location).getLong());
                    locations.delete(key);
                }
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

    /** Makes an entry in a log one of no ledger. */
    private static void blot(String folder, long location) throws IOException {
        Path log = Path.of(folder, Long.toHexString(location >> 32) + ".log");
        try (FileChannel file = FileChannel.open(log, StandardOpenOption.WRITE)) {
            file.write(ByteBuffer.allocate(8).putLong(0, -1), location & 0xffffffffL);
        }
    }

    private static byte[] key(long ledger, long entry) {
        return ByteBuffer.allocate(16).putLong(ledger).putLong(entry).array();
    }
}
