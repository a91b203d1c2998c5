import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.opensearch.common.settings.Settings;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.plugins.Plugin;

/** One node of OpenSearch in this JVM, with the modules that its distribution has and tests need. */
public class OpenSearchServer {
    private static final List<String> PLUGINS = List.of(
        "org.opensearch.transport.Netty4Plugin",
        "org.opensearch.analysis.common.CommonAnalysisPlugin",
        "org.opensearch.index.mapper.MapperExtrasPlugin",
        "org.opensearch.index.reindex.ReindexPlugin",
        "org.opensearch.painless.PainlessPlugin",
        "org.opensearch.knn.plugin.KNNPlugin");

    private static final class Local extends Node {
        Local(Settings settings, Collection<Class<? extends Plugin>> plugins) {
            super(InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "node"), plugins, false);
        }
    }

    /** Arguments: its folder, and the port of HTTP on 127.0.0.1. */
    public static void main(String[] arguments) throws Exception {
        Settings settings = Settings.builder()
            .put("path.home", arguments[0])
            .put("http.host", "127.0.0.1")
            .put("http.port", arguments[1])
            .put("transport.host", "127.0.0.1")
            .put("transport.port", 0)
            .put("cluster.name", "tests")
            .put("node.name", "node")
            .put("discovery.type", "single-node")
            .put("http.type", "netty4")
            .put("transport.type", "netty4")
            // A developer's disk may be nearly full; that is no business of a test.
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .build();
        List<Class<? extends Plugin>> plugins = new ArrayList<>();
        for (String name : PLUGINS) {
            plugins.add(Class.forName(name).asSubclass(Plugin.class));
        }
        Node node = new Local(settings, plugins);
        node.start();
        Thread.currentThread().join();
    }
}
