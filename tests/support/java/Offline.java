package org.apache.bookkeeper.bookie.storage.ldb;

import java.io.File;
import java.util.HashSet;
import java.util.Set;
import org.apache.bookkeeper.bookie.InterleavedStorageRegenerateIndexOp;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.stats.NullStatsLogger;

/**
 * BookKeeper's own offline tools on the folders of a bookie that is stopped.
 *
 * <p>Arguments: what to do; the journal, ledger and index folders, each list joined by commas; for ledgers their ids.
 */
public final class Offline {
    private Offline() {}

    public static void main(String[] arguments) throws Exception {
        ServerConfiguration conf = new ServerConfiguration();
        conf.setJournalDirsName(arguments[1].split(","));
        conf.setLedgerDirNames(arguments[2].split(","));
        conf.setIndexDirName(arguments[3].split(","));
        conf.setDiskUsageThreshold(0.999f);
        conf.setDiskUsageWarnThreshold(0.999f);
        Set<Long> ledgers = new HashSet<>();
        for (int n = 4; n < arguments.length; n++) {
            ledgers.add(Long.parseLong(arguments[n]));
        }
        switch (arguments[0]) {
            case "rebuild":
                if (!new LedgersIndexRebuildOp(conf, false).initiate()) {
                    throw new IllegalStateException("the ledgers were not rebuilt");
                }
                new LocationsIndexRebuildOp(conf).initiate();
                break;
            case "regenerate":
                new InterleavedStorageRegenerateIndexOp(conf, ledgers, new byte[0]).initiate(false);
                break;
            case "limbo":
            case "doubt":
                String folder = new File(conf.getIndexDirNames()[0], "current").getPath();
                try (LedgerMetadataIndex index = new LedgerMetadataIndex(
                        conf, KeyValueStorageRocksDB.factory, folder, NullStatsLogger.INSTANCE)) {
                    if (arguments[0].equals("doubt")) {
                        index.setStorageStateFlags(0, 1);
                    }
                    for (long ledger : ledgers) {
                        index.setLimbo(ledger);
                    }
                    index.flush();
                }
                break;
            default:
                throw new IllegalArgumentException(arguments[0]);
        }
        // Nothing that was opened is worth an orderly end.
        Runtime.getRuntime().halt(0);
    }
}
