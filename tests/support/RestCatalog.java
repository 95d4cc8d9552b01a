import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.server.Server;

/** Iceberg's own REST catalog, as its tests have it, on loopback: port, database and folder of the tables. */
public class RestCatalog {
    public static void main(String[] arguments) throws Exception {
        JdbcCatalog catalog = new JdbcCatalog();
        catalog.setConf(new Configuration());
        catalog.initialize(
                "behind", Map.of("uri", arguments[1], "warehouse", arguments[2], "jdbc.schema-version", "V1"));
        Server server = new Server(
                new InetSocketAddress(InetAddress.getLoopbackAddress(), Integer.parseInt(arguments[0])));
        ServletContextHandler handler = new ServletContextHandler();
        handler.addServlet(new RESTCatalogServlet(new RESTCatalogAdapter(catalog)), "/*");
        server.setHandler(handler);
        server.start();
        server.join();
    }
}
