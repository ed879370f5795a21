import com.google.protobuf.ByteString;
import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import io.grpc.stub.MetadataUtils;
import java.io.File;
import java.util.Scanner;
import java.util.concurrent.TimeUnit;
import org.bkmeta.service.v1.BkmetaGrpc;
import org.bkmeta.service.v1.Deletes;
import org.bkmeta.service.v1.DeletesRequest;
import org.bkmeta.service.v1.LedgerId;
import org.bkmeta.service.v1.Ledgers;
import org.bkmeta.service.v1.PurgeRequest;
import org.bkmeta.service.v1.StatusRequest;
import org.bkmeta.service.v1.VerifyRequest;

/**
 * A pipeline that deletes ledgers by way of the service: it asks for the deletes, verifies, and purges by the certificate.
 *
 * <p>Arguments: host:port, PEM of who vouches for the service, ledgers. The token stands in BKMETA_SERVICE_TOKEN. Prints a
 * line for each step: its name, exit code, the state and verdict of each ledger, and the whole verdict. Before each
 * verification it waits for a line on its standard input: references and inventories are made anew by then.
 */
public final class Client {
  public static void main(String[] args) throws Exception {
    ChannelCredentials credentials = TlsChannelCredentials.newBuilder().trustManager(new File(args[1])).build();
    ManagedChannel channel = Grpc.newChannelBuilder(args[0], credentials).maxInboundMessageSize(64 << 20).build();
    try {
      BkmetaGrpc.BkmetaBlockingStub nobody = BkmetaGrpc.newBlockingStub(channel);
      Metadata headers = new Metadata();
      headers.put(
          Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER),
          "Bearer " + System.getenv("BKMETA_SERVICE_TOKEN"));
      BkmetaGrpc.BkmetaBlockingStub known = nobody.withInterceptors(MetadataUtils.newAttachHeadersInterceptor(headers));
      run(nobody, known, args);
    } finally {
      channel.shutdownNow().awaitTermination(10, TimeUnit.SECONDS);
    }
  }

  private static void run(BkmetaGrpc.BkmetaBlockingStub nobody, BkmetaGrpc.BkmetaBlockingStub known, String[] args) {
    System.out.println("leads " + within(nobody, 60).getStatus(StatusRequest.getDefaultInstance()).getLeads());
    DeletesRequest.Builder request = DeletesRequest.newBuilder().setReason("ticket 12").setSoak("0s");
    Ledgers.Builder all = Ledgers.newBuilder();
    for (int at = 2; at < args.length; at++) {
      LedgerId ledger = LedgerId.newBuilder().setLedgerId(Long.parseLong(args[at])).build();
      request.addLedgers(ledger);
      all.addLedgers(ledger);
    }
    try {
      within(nobody, 60).requestDeletes(request.build());
      throw new IllegalStateException("it acts for everybody");
    } catch (StatusRuntimeException error) {
      System.out.println("without a token " + error.getStatus().getCode());
    }
    show("request", within(known, 120).requestDeletes(request.build()));
    VerifyRequest verify = VerifyRequest.newBuilder().addAllLedgers(all.getLedgersList()).setCertificate(true).build();
    Scanner go = new Scanner(System.in);
    go.nextLine();
    show("verify", within(known, 120).verifyDeletes(verify));
    go.nextLine();
    Deletes verified = within(known, 120).verifyDeletes(verify);
    show("verify", verified);
    ByteString certificate = verified.getCertificate();
    show("purge", within(known, 120).purgeDeletes(PurgeRequest.newBuilder().setCertificate(certificate).build()));
    show("status", within(nobody, 120).getDeletes(all.build()));
    try {
      nobody.withDeadlineAfter(1, TimeUnit.MILLISECONDS).getDeletes(all.build());
      throw new IllegalStateException("a deadline is not kept");
    } catch (StatusRuntimeException error) {
      System.out.println("too late " + (error.getStatus().getCode() == Status.Code.DEADLINE_EXCEEDED));
    }
  }

  private static BkmetaGrpc.BkmetaBlockingStub within(BkmetaGrpc.BkmetaBlockingStub stub, int seconds) {
    return stub.withDeadlineAfter(seconds, TimeUnit.SECONDS);
  }

  private static void show(String step, Deletes answer) {
    StringBuilder line = new StringBuilder(step).append(' ').append(answer.getExitCode());
    answer.getLedgersList().forEach(
        one -> line.append(' ').append(one.getLedgerId()).append(':').append(one.getState()).append(one.getVerdict()));
    System.out.println(line.append(" | ").append(answer.getVerdict()));
  }
}
