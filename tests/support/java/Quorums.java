import java.util.ArrayList;
import java.util.List;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.DistributionSchedule;
import org.apache.bookkeeper.client.RoundRobinDistributionSchedule;

/**
 * What BookKeeper's own round robin says of every small ensemble.
 *
 * <p>Two kinds of lines: "place E W A entry position,position,…", and "covered E W A silent true|false", where bit p of the
 * number silent is set if position p did not answer.
 */
public final class Quorums {
    private static final int LARGEST = 6;

    private static void show(int size, int write, int ack) {
        RoundRobinDistributionSchedule schedule = new RoundRobinDistributionSchedule(write, ack, size);
        for (long entry = 0; entry < 2L * size + 1; entry++) {
            DistributionSchedule.WriteSet set = schedule.getWriteSet(entry);
            List<String> positions = new ArrayList<>();
            for (int i = 0; i < set.size(); i++) {
                positions.add(Integer.toString(set.get(i)));
            }
            System.out.printf("place %d %d %d %d %s%n", size, write, ack, entry, String.join(",", positions));
        }
        for (int silent = 0; silent < 1 << size; silent++) {
            DistributionSchedule.QuorumCoverageSet covered = schedule.getCoverageSet();
            for (int position = 0; position < size; position++) {
                boolean answers = (silent >> position & 1) == 0;
                int code = position % 3 == 0 ? BKException.Code.OK : position % 3 == 1
                        ? BKException.Code.NoSuchEntryException : BKException.Code.NoSuchLedgerExistsException;
                covered.addBookie(position, answers ? code : BKException.Code.BookieHandleNotAvailableException);
            }
            System.out.printf("covered %d %d %d %d %b%n", size, write, ack, silent, covered.checkCovered());
        }
    }

    public static void main(String[] arguments) {
        for (int size = 1; size <= LARGEST; size++) {
            for (int write = 1; write <= size; write++) {
                for (int ack = 1; ack <= write; ack++) {
                    show(size, write, ack);
                }
            }
        }
    }
}
