package org.apache.bookkeeper.bookie;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.zip.CRC32;
import org.apache.bookkeeper.bookie.storage.CompactionEntryLog;
import org.apache.bookkeeper.bookie.storage.EntryLogScanner;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.util.DiskChecker;

/**
 * BookKeeper's own readers on files, and its own logger on an empty folder.
 *
 * <p>The folder that is named holds logs/current/*.log, journals/current/*.txn, indexes/*.idx and cookies/*; a line is
 * printed for each: kind, name, what was read, and the error that ended it. Then logs are written: made/empty,
 * made/split and made/twice, and what a compaction leaves that ends in each of its states.
 */
public final class Formats {
    private static final int MANY = 25_000;

    private final File home;

    private Formats(File home) {
        this.home = home;
    }

    public static void main(String[] arguments) throws Exception {
        Formats formats = new Formats(new File(arguments[0]));
        formats.readLogs();
        formats.readJournals();
        for (File file : new File(formats.home, "indexes").listFiles()) {
            say("index", file, () -> {
                FileInfo index = new FileInfo(file, null, FileInfo.CURRENT_HEADER_VERSION);
                index.readHeader();
                ByteBuf lac = index.getExplicitLac();
                return index.isFenced() + " " + index.getMasterKey().length + " " + (lac == null ? 0 : lac.readableBytes());
            });
        }
        for (File file : new File(formats.home, "cookies").listFiles()) {
            say("cookie", file, () -> {
                Cookie cookie = Cookie.parseFromBytes(Files.readAllBytes(file.toPath()));
                return cookie.toString().replaceAll("[\n\t]", " ");
            });
        }
        for (String kind : new String[] {"empty", "split", "twice"}) {
            formats.write(kind);
        }
        for (String state : new String[] {"compacting", "compacted", "linked", "restarted", "ended"}) {
            formats.compact(state);
        }
        System.out.flush();
        // Nothing that was opened is worth an orderly end.
        Runtime.getRuntime().halt(0);
    }

    private static void say(String kind, File file, Callable<String> read) {
        String said;
        try {
            said = read.call() + "\t";
        } catch (Throwable error) {
            said = "\t" + error.toString().replaceAll("\\s+", " ");
        }
        System.out.println("FORMAT\t" + kind + "\t" + file.getName() + "\t" + said);
    }

    private ServerConfiguration settings(File folder) {
        ServerConfiguration conf = new ServerConfiguration();
        conf.setJournalDirName(new File(home, "journals").getPath());
        conf.setLedgerDirNames(new String[] {folder.getPath()});
        conf.setDiskUsageThreshold(0.999f);
        conf.setDiskUsageWarnThreshold(0.999f);
        conf.setEntryLogFilePreAllocationEnabled(false);
        return conf;
    }

    private void readLogs() throws Exception {
        File folder = new File(home, "logs");
        DefaultEntryLogger logger = new DefaultEntryLogger(settings(folder));
        for (File file : new File(folder, "current").listFiles((at, name) -> name.endsWith(".log"))) {
            long id = Long.parseLong(file.getName().replace(".log", ""), 16);
            List<String> entries = new ArrayList<>();
            say("log", file, () -> {
                try {
                    logger.scanEntryLog(id, new EntryLogScanner() {
                        @Override
                        public boolean accept(long ledger) {
                            return true;
                        }

                        @Override
                        public void process(long ledger, long offset, ByteBuf entry) {
                            long number = entry.getLong(entry.readerIndex() + Long.BYTES);
                            entries.add(ledger + ":" + number + ":" + offset + ":" + entry.readableBytes());
                        }
                    });
                } catch (Throwable error) {
                    entries.add("!");
                }
                return String.join(" ", entries);
            });
            say("map", file, () -> {
                List<String> sizes = new ArrayList<>();
                logger.extractEntryLogMetadataFromIndex(id).getLedgersMap().forEach((l, n) -> sizes.add(l + ":" + n));
                return String.join(" ", sizes);
            });
        }
    }

    private void readJournals() throws Exception {
        File folder = new File(home, "journals/current");
        ServerConfiguration conf = settings(new File(home, "logs"));
        LedgerDirsManager dirs =
                new LedgerDirsManager(conf, conf.getLedgerDirs(), new DiskChecker(0.999f, 0.999f));
        Journal journal = new Journal(0, folder, conf, dirs);
        for (File file : folder.listFiles((at, name) -> name.endsWith(".txn"))) {
            long id = Long.parseLong(file.getName().replace(".txn", ""), 16);
            List<String> records = new ArrayList<>();
            say("journal", file, () -> {
                try {
                    journal.scanJournal(id, 0, (version, offset, record) ->
                            records.add(record.getLong() + ":" + record.getLong()), false);
                } catch (Throwable error) {
                    records.add("!");
                }
                return String.join(" ", records);
            });
        }
    }

    private static ByteBuf entry(long ledger, long number) {
        byte[] payload = "payload".getBytes(StandardCharsets.UTF_8);
        ByteBuf entry = Unpooled.buffer();
        entry.writeLong(ledger).writeLong(number).writeLong(number - 1).writeLong(payload.length * (number + 1));
        CRC32 digest = new CRC32();
        digest.update(entry.array(), entry.arrayOffset(), entry.readableBytes());
        digest.update(payload);
        return entry.writeLong(digest.getValue()).writeBytes(payload);
    }

    private void write(String kind) throws Exception {
        File folder = new File(home, "made/" + kind);
        Files.createDirectories(new File(folder, "current").toPath());
        DefaultEntryLogger logger = new DefaultEntryLogger(settings(folder));
        EntryLogManagerBase manager = (EntryLogManagerBase) logger.getEntryLogManager();
        manager.createNewLog(0);
        if (kind.equals("split")) {
            for (long ledger = 0; ledger < MANY; ledger++) {
                logger.addEntry(ledger, entry(ledger, 0));
            }
        } else if (kind.equals("twice")) {
            logger.addEntry(1L, entry(1, 0));
            // As where the next log could not be made: the map is there, and the log goes on.
            manager.getCurrentLogForLedger(1).appendLedgersMap();
            logger.addEntry(2L, entry(2, 0));
        }
        manager.createNewLog(0);
        manager.flushRotatedLogs();
        logger.flush();
    }

    private void compact(String state) throws Exception {
        File folder = new File(home, "made/" + state);
        Files.createDirectories(new File(folder, "current").toPath());
        Files.writeString(new File(folder, "current/lastId").toPath(), "1e\n");
        DefaultEntryLogger logger = new DefaultEntryLogger(settings(folder));
        EntryLogManagerBase manager = (EntryLogManagerBase) logger.getEntryLogManager();
        manager.createNewLog(0);
        logger.addEntry(1L, entry(1, 0));
        logger.addEntry(2L, entry(2, 0));
        logger.addEntry(1L, entry(1, 1));
        manager.createNewLog(0);
        manager.flushRotatedLogs();
        CompactionEntryLog log = logger.newCompactionLog(0x1f);
        log.addEntry(1, entry(1, 0));
        log.addEntry(1, entry(1, 1));
        log.flush();
        if (!state.equals("compacting")) {
            log.markCompacted();
        }
        if (state.equals("restarted")) {
            for (CompactionEntryLog found : new DefaultEntryLogger(settings(folder)).incompleteCompactionLogs()) {
                found.makeAvailable();
            }
        } else if (state.equals("linked") || state.equals("ended")) {
            log.makeAvailable();
        }
        if (state.equals("ended")) {
            log.finalizeAndCleanup();
        }
    }
}
