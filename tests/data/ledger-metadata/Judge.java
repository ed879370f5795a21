import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.StringJoiner;
import java.util.TreeMap;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.meta.LedgerMetadataSerDe;
import org.apache.bookkeeper.net.BookieId;

/** Reads base64 records, one a line; prints as JSON what BookKeeper's own codec takes them for, and writes them as. */
public class Judge {
    private static final Base64.Encoder BASE64 = Base64.getEncoder();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println("{\"raw\": \"" + line + "\", \"java\": " + judge(Base64.getDecoder().decode(line)) + "}");
        }
        out.flush();
    }

    private static String judge(byte[] raw) throws Exception {
        LedgerMetadataSerDe codec = new LedgerMetadataSerDe();
        LedgerMetadata metadata;
        try {
            metadata = codec.parseConfig(raw, 1, Optional.empty());
        } catch (Exception refused) {
            return "null";
        }
        StringJoiner fields = new StringJoiner(", ", "{", "}");
        fields.add("\"format\": " + metadata.getMetadataFormatVersion());
        fields.add("\"quorums\": [" + metadata.getEnsembleSize() + ", " + metadata.getWriteQuorumSize() + ", "
                + metadata.getAckQuorumSize() + "]");
        fields.add("\"state\": \"" + metadata.getState() + "\"");
        fields.add("\"last_entry\": " + metadata.getLastEntryId());
        fields.add("\"length\": " + metadata.getLength());
        fields.add("\"digest\": " + (metadata.hasPassword() ? "\"" + metadata.getDigestType() + "\"" : "null"));
        fields.add("\"password\": " + (metadata.hasPassword() ? base64(metadata.getPassword()) : "null"));
        fields.add("\"ctime\": " + metadata.getCtime());
        fields.add("\"token\": " + metadata.getCToken());
        StringJoiner segments = new StringJoiner(", ", "[", "]");
        for (Map.Entry<Long, ? extends List<BookieId>> segment : metadata.getAllEnsembles().entrySet()) {
            StringJoiner members = new StringJoiner(", ", "[", "]");
            for (BookieId member : segment.getValue()) {
                members.add(base64(member.toString().getBytes("UTF-8")));
            }
            segments.add("[" + segment.getKey() + ", " + members + "]");
        }
        fields.add("\"segments\": " + segments);
        StringJoiner custom = new StringJoiner(", ", "[", "]");
        for (Map.Entry<String, byte[]> entry : new TreeMap<>(metadata.getCustomMetadata()).entrySet()) {
            custom.add("[" + base64(entry.getKey().getBytes("UTF-8")) + ", " + base64(entry.getValue()) + "]");
        }
        fields.add("\"custom\": " + custom);
        try {
            fields.add("\"written\": " + base64(codec.serialize(metadata)));
        } catch (NullPointerException cannotBeWritten) {
            fields.add("\"written\": null");
        }
        return fields.toString();
    }

    private static String base64(byte[] bytes) {
        return "\"" + BASE64.encodeToString(bytes) + "\"";
    }
}
