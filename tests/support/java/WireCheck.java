import java.nio.charset.StandardCharsets;
import org.apache.bookkeeper.auth.AuthCallbacks;
import org.apache.bookkeeper.auth.AuthToken;
import org.apache.bookkeeper.auth.BookieAuthProvider;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.proto.BookieConnectionPeer;

/** A bookie's authentication for tests: "hello" is answered "more?", "good" is accepted, all else is refused. */
public final class WireCheck implements BookieAuthProvider.Factory {
    @Override
    public void init(ServerConfiguration conf) { }

    @Override
    public String getPluginName() {
        return "wirecheck";
    }

    @Override
    public BookieAuthProvider newProvider(
            BookieConnectionPeer peer, AuthCallbacks.GenericCallback<Void> completed) {
        return (token, answer) -> {
            switch (new String(token.getData(), StandardCharsets.UTF_8)) {
                case "hello" -> answer.operationComplete(BKException.Code.OK, wrap("more?"));
                case "good" -> {
                    answer.operationComplete(BKException.Code.OK, wrap("welcome"));
                    completed.operationComplete(BKException.Code.OK, null);
                }
                default -> answer.operationComplete(BKException.Code.UnauthorizedAccessException, null);
            }
        };
    }

    private static AuthToken wrap(String text) {
        return AuthToken.wrap(text.getBytes(StandardCharsets.UTF_8));
    }
}
