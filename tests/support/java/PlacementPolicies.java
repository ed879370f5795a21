import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.netty.util.HashedWheelTimer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.bookkeeper.client.BKException.BKNotEnoughBookiesException;
import org.apache.bookkeeper.client.EnsemblePlacementPolicy;
import org.apache.bookkeeper.common.util.ReflectionUtils;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.feature.SettableFeatureProvider;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.net.BookieSocketAddress;
import org.apache.bookkeeper.net.DNSToSwitchMapping;
import org.apache.bookkeeper.stats.NullStatsLogger;

/**
 * What BookKeeper's placement policies say of ensembles, and whom they choose in a member's place.
 *
 * <p>A line of stdin is one JSON object: "policy" (a class of org.apache.bookkeeper.client), "conf", "locations" (host to
 * location), "cases" (each "ensemble", "write", "ack", "position"). Its answer is a line of stdout: a list, for each case
 * the adherence and the bookie that the policy chose for the position: null where it finds none. "broken" is what it threw instead.
 */
public final class PlacementPolicies {
    private static final ObjectMapper JSON = new ObjectMapper();

    private record Racks(Map<String, String> locations) implements DNSToSwitchMapping {
        @Override
        public List<String> resolve(List<String> names) {
            List<String> found = new ArrayList<>();
            names.forEach(name -> found.add(locations.get(name)));
            return found;
        }

        @Override
        public void reloadCachedMappings() { }
    }

    private static List<Map<String, Object>> answer(JsonNode order, HashedWheelTimer timer) throws Exception {
        ClientConfiguration conf = new ClientConfiguration();
        order.get("conf").fields().forEachRemaining(one -> conf.setProperty(one.getKey(), one.getValue().asText()));
        Map<String, String> locations = new HashMap<>();
        Set<BookieId> bookies = new HashSet<>();
        order.get("locations").fields().forEachRemaining(one -> {
            locations.put(one.getKey(), one.getValue().asText());
            bookies.add(BookieId.parse(one.getKey() + ":3181"));
        });
        EnsemblePlacementPolicy policy = (EnsemblePlacementPolicy) ReflectionUtils.newInstance(
                Class.forName("org.apache.bookkeeper.client." + order.get("policy").asText()));
        policy.initialize(conf, Optional.of(new Racks(locations)), timer, SettableFeatureProvider.DISABLE_ALL,
                NullStatsLogger.INSTANCE, BookieSocketAddress.LEGACY_BOOKIEID_RESOLVER);
        policy.onClusterChanged(bookies, Collections.emptySet());
        List<Map<String, Object>> answers = new ArrayList<>();
        for (JsonNode one : order.get("cases")) {
            List<BookieId> ensemble = new ArrayList<>();
            one.get("ensemble").forEach(host -> ensemble.add(BookieId.parse(host.asText() + ":3181")));
            int write = one.get("write").asInt();
            int ack = one.get("ack").asInt();
            Map<String, Object> told = new HashMap<>();
            told.put("adheres", policy.isEnsembleAdheringToPlacementPolicy(ensemble, write, ack).name());
            BookieId leaves = ensemble.get(one.get("position").asInt());
            try {
                told.put("chosen", policy.replaceBookie(ensemble.size(), write, ack, Collections.emptyMap(),
                        new ArrayList<>(ensemble), leaves, new HashSet<>()).getResult().toString());
            } catch (BKNotEnoughBookiesException none) {
                told.put("chosen", null);
            } catch (RuntimeException broken) {
                told.put("broken", broken.toString());
            }
            answers.add(told);
        }
        return answers;
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        HashedWheelTimer timer = new HashedWheelTimer();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(answer(JSON.readTree(line), timer)));
            out.flush();
        }
        timer.stop();
        System.exit(0);
    }
}
