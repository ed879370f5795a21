import java.util.*;
import org.apache.bookkeeper.client.*;
import org.apache.bookkeeper.conf.ClientConfiguration;

public class Client {
    static void add(LedgerHandle h, int from, int n) throws Exception {
        for (int i = from; i < from + n; i++) {
            byte[] b = new byte[900];
            Arrays.fill(b, (byte) ('a' + i % 26));
            h.addEntry(b);
        }
    }
    public static void main(String[] a) throws Exception {
        ClientConfiguration c = new ClientConfiguration();
        c.setZkServers(a[0]); c.setZkTimeout(30000);
        BookKeeper.DigestType d = BookKeeper.DigestType.valueOf(a[2]);
        BookKeeper bk = new BookKeeper(c);
        byte[] pw = "hunter2".getBytes();
        StringBuilder out = new StringBuilder();
        if (a[1].equals("first")) {
            LedgerHandle closed = bk.createLedger(1, 1, d, pw);
            add(closed, 0, 40); closed.close();
            LedgerHandle fenced = bk.createLedger(1, 1, BookKeeper.DigestType.MAC, pw);
            add(fenced, 0, 15);
            BookKeeper other = new BookKeeper(c);
            LedgerHandle r = other.openLedger(fenced.getId(), BookKeeper.DigestType.MAC, pw);
            out.append("closed " + closed.getId() + " 40 " + d + "\nfenced " + fenced.getId() + " 15 MAC\nlast " + r.getLastAddConfirmed());
        } else {
            LedgerHandle open = bk.createLedger(1, 1, d, new byte[0]);
            add(open, 0, 25);
            LedgerHandle f2 = bk.createLedger(1, 1, d, pw);
            add(f2, 0, 3);
            BookKeeper other = new BookKeeper(c);
            other.openLedger(f2.getId(), d, pw);
            out.append("open " + open.getId() + " 25 " + d + "\nfenced2 " + f2.getId() + " 3 " + d);
        }
        System.out.println(out);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
