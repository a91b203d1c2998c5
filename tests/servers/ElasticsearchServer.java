import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.function.Predicate;
import java.util.function.Supplier;
import java.util.function.UnaryOperator;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.charfilter.MappingCharFilter;
import org.apache.lucene.analysis.charfilter.NormalizeCharMap;
import org.apache.lucene.analysis.en.EnglishPossessiveFilter;
import org.apache.lucene.analysis.en.PorterStemFilter;
import org.apache.lucene.analysis.miscellaneous.ASCIIFoldingFilter;
import org.elasticsearch.Build;
import org.elasticsearch.client.internal.node.NodeClient;
import org.elasticsearch.cluster.metadata.IndexNameExpressionResolver;
import org.elasticsearch.cluster.node.DiscoveryNodes;
import org.elasticsearch.common.io.stream.NamedWriteableRegistry;
import org.elasticsearch.common.logging.LogConfigurator;
import org.elasticsearch.common.settings.ClusterSettings;
import org.elasticsearch.common.settings.IndexScopedSettings;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.common.settings.SettingsFilter;
import org.elasticsearch.features.NodeFeature;
import org.elasticsearch.index.analysis.CharFilterFactory;
import org.elasticsearch.index.analysis.TokenFilterFactory;
import org.elasticsearch.indices.analysis.AnalysisModule.AnalysisProvider;
import org.elasticsearch.node.InternalSettingsPreparer;
import org.elasticsearch.node.Node;
import org.elasticsearch.plugins.ActionPlugin;
import org.elasticsearch.plugins.AnalysisPlugin;
import org.elasticsearch.plugins.Plugin;
import org.elasticsearch.plugins.PluginsLoader;
import org.elasticsearch.rest.RestChannel;
import org.elasticsearch.rest.RestController;
import org.elasticsearch.rest.RestHandler;
import org.elasticsearch.rest.RestRequest;
import org.elasticsearch.rest.RestResponse;
import org.elasticsearch.rest.RestStatus;

/** One node of Elasticsearch in this JVM: the server, its HTTP, and of its modules what is needed. */
public class ElasticsearchServer {

    /** What modules of its distribution have, which are in no repository: filters, Lucene's there too, and `GET /`. */
    public static final class Modules extends Plugin implements AnalysisPlugin, ActionPlugin {
        @Override
        public Map<String, AnalysisProvider<TokenFilterFactory>> getTokenFilters() {
            return Map.of(
                "asciifolding",
                (index, environment, name, settings) -> new Filter(name, ASCIIFoldingFilter::new),
                "stemmer",
                (index, environment, name, settings) -> new Filter(
                    name,
                    settings.get("language", "english").equals("english") ? PorterStemFilter::new : EnglishPossessiveFilter::new));
        }

        @Override
        public Map<String, AnalysisProvider<CharFilterFactory>> getCharFilters() {
            return Map.of("mapping", (index, environment, name, settings) -> {
                var made = new NormalizeCharMap.Builder();
                for (String each : settings.getAsList("mappings")) {
                    String[] sides = each.split(" => ");
                    made.add(letter(sides[0]), letter(sides[1]));
                }
                return new Letters(name, made.build());
            });
        }

        /** A character as it is escaped. */
        private static String letter(String written) {
            return Character.toString(Integer.parseInt(written.substring(2), 16));
        }

        @Override
        public List<RestHandler> getRestHandlers(
            Settings settings,
            NamedWriteableRegistry writeables,
            RestController controller,
            ClusterSettings ofCluster,
            IndexScopedSettings ofIndexes,
            SettingsFilter filter,
            IndexNameExpressionResolver resolver,
            Supplier<DiscoveryNodes> nodes,
            Predicate<NodeFeature> features) {
            return List.of(new Front());
        }
    }

    public record Front() implements RestHandler {
        @Override
        public List<Route> routes() {
            return List.of(new Route(RestRequest.Method.GET, "/"));
        }

        @Override
        public void handleRequest(RestRequest request, RestChannel channel, NodeClient client) throws Exception {
            var said = channel.newBuilder().startObject().startObject("version");
            said.field("number", Build.current().version()).field("build_flavor", Build.current().flavor());
            channel.sendResponse(new RestResponse(RestStatus.OK, said.endObject().endObject()));
        }
    }

    public record Letters(String name, NormalizeCharMap map) implements CharFilterFactory {
        @Override
        public Reader create(Reader text) {
            return new MappingCharFilter(map, text);
        }
    }

    public record Filter(String name, UnaryOperator<TokenStream> made) implements TokenFilterFactory {
        @Override
        public TokenStream create(TokenStream words) {
            return made.apply(words);
        }
    }

    /** Arguments: its folder, the port of HTTP on 127.0.0.1, and a folder with the jars of its transport. */
    public static void main(String[] arguments) throws Exception {
        LogConfigurator.configureESLogging();
        Path home = Path.of(arguments[0]);
        Path config = Files.createDirectories(home.resolve("config"));
        Path transport = declared(home, "transport-netty4", "org.elasticsearch.transport.netty4.Netty4Plugin");
        try (var jars = Files.newDirectoryStream(Path.of(arguments[2]), "*netty*.jar")) {
            for (Path each : jars) {
                Files.copy(each, transport.resolve(each.getFileName()));
            }
        }
        pack(declared(home, "modules", Modules.class.getName()).resolve("modules.jar"));
        Settings settings = Settings.builder()
            .put("path.home", home)
            .put("http.host", "127.0.0.1")
            .put("http.port", arguments[1])
            .put("transport.host", "127.0.0.1")
            .put("transport.port", 0)
            .put("cluster.name", "tests")
            .put("discovery.type", "single-node")
            .put("http.type", "netty4")
            .put("transport.type", "netty4")
            // A developer's disk may be nearly full; that is no business of a test.
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .build();
        var environment = InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), config, () -> "node");
        var modules = PluginsLoader.loadModulesBundles(home.resolve("modules"));
        new Node(environment, PluginsLoader.createPluginsLoader(modules, Set.of(), Map.of(), false)).start();
        Thread.currentThread().join();
    }

    /** The folder of a module, which must have its classes in a jar there. */
    private static Path declared(Path home, String name, String type) throws Exception {
        Path folder = Files.createDirectories(home.resolve("modules").resolve(name));
        Properties said = new Properties();
        said.putAll(Map.of("name", name, "description", name, "version", "1", "classname", type, "java.version", "17"));
        said.put("elasticsearch.version", Build.current().version());
        try (var out = Files.newOutputStream(folder.resolve("plugin-descriptor.properties"))) {
            said.store(out, null);
        }
        return folder;
    }

    private static void pack(Path jar) throws Exception {
        try (var out = new JarOutputStream(Files.newOutputStream(jar))) {
            for (Class<?> each : List.of(Modules.class, Filter.class, Letters.class, Front.class)) {
                String name = each.getName() + ".class";
                out.putNextEntry(new JarEntry(name));
                try (var in = ElasticsearchServer.class.getResourceAsStream(name)) {
                    in.transferTo(out);
                }
            }
        }
    }
}
