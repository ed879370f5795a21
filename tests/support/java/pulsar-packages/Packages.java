import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.distributedlog.DistributedLogConfiguration;
import org.apache.distributedlog.LogSegmentMetadata;
import org.apache.distributedlog.api.DistributedLogManager;
import org.apache.distributedlog.api.namespace.Namespace;
import org.apache.distributedlog.api.namespace.NamespaceBuilder;
import org.apache.distributedlog.impl.metadata.BKDLConfig;
import org.apache.distributedlog.metadata.DLMetadata;
import org.apache.pulsar.common.conf.InternalConfigurationData;
import org.apache.pulsar.functions.worker.WorkerConfig;
import org.apache.pulsar.functions.worker.WorkerUtils;

/**
 * Packages of functions in streams of DistributedLog, written and deleted by the code of Pulsar's function worker;
 * ``Packages ZOOKEEPER ROOT FOLDER``. Packages of the package management, whose storage is no released jar, are written
 * by the same code into its own streams.
 *
 * <p>Prints the ledgers of each stream as one JSON object, and of one that was deleted.
 */
public final class Packages {
    private static final String PACKAGES = "distributedlog://%s/pulsar/packages";

    private final DistributedLogConfiguration conf;
    private final File file;

    private Packages(Path folder) throws Exception {
        WorkerConfig worker = new WorkerConfig();
        worker.setNumFunctionPackageReplicas(2);
        conf = WorkerUtils.getDlogConf(worker);
        file = Files.write(folder.resolve("function.jar"), "a package".repeat(1000).getBytes(StandardCharsets.UTF_8))
            .toFile();
    }

    private Namespace open(URI uri) throws Exception {
        return NamespaceBuilder.newBuilder().conf(conf).clientId("packages").uri(uri).build();
    }

    private void upload(Namespace namespace, String name) throws Exception {
        WorkerUtils.uploadFileToBookkeeper(name, file, namespace);
    }

    private static List<Long> list(Namespace namespace, String name) throws Exception {
        List<Long> found = new ArrayList<>();
        try (DistributedLogManager log = namespace.openLog(name)) {
            for (LogSegmentMetadata segment : log.getLogSegments()) {
                found.add(segment.getLogSegmentId());
            }
        }
        return found;
    }

    public static void main(String[] words) throws Exception {
        Map<String, List<Long>> truth = new LinkedHashMap<>();
        Packages packages = new Packages(Path.of(words[2]));
        InternalConfigurationData where = new InternalConfigurationData(
            "zk:" + words[0], "zk:" + words[0], words[1], "zk+hierarchical://" + words[0] + words[1], null);
        try (Namespace functions = packages.open(WorkerUtils.initializeDlogNamespace(where))) {
            for (String name : List.of("public/default/kept", "public/default/again", "public/default/deleted")) {
                packages.upload(functions, name);
            }
            truth.put("overwritten", list(functions, "public/default/again"));
            packages.upload(functions, "public/default/again");
            truth.put("deleted", list(functions, "public/default/deleted"));
            WorkerUtils.deleteFromBookkeeper(functions, "public/default/deleted");
            for (String name : List.of("public/default/kept", "public/default/again")) {
                truth.put(name, list(functions, name));
            }
        }
        URI uri = URI.create(String.format(PACKAGES, words[0]));
        DLMetadata.create(new BKDLConfig(words[0], words[1])).create(uri);
        try (Namespace namespace = packages.open(uri)) {
            packages.upload(namespace, "function/public/default/managed/v1");
            truth.put("managed", list(namespace, "function/public/default/managed/v1"));
        }
        System.out.println(new ObjectMapper().writeValueAsString(truth));
        System.exit(0);
    }
}
