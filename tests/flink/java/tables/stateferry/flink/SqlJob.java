package stateferry.flink;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;

/** A job with queries whose operators have all kinds of state, and an operator of the DataStream API beside them. */
final class SqlJob {
    private static final Map<String, String> QUERIES = new LinkedHashMap<>();

    static {
        QUERIES.put("grouped", "SELECT customer, COUNT(*), SUM(amount), MAX(amount) FROM orders GROUP BY customer");
        QUERIES.put("distinct", "SELECT customer, COUNT(DISTINCT item), SUM(DISTINCT amount) FROM orders GROUP BY customer");
        QUERIES.put("retracted", "SELECT n, COUNT(*), MAX(customer) FROM"
                + " (SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer) GROUP BY n");
        QUERIES.put("joined", "SELECT a.customer, a.item, b.amount FROM orders a JOIN orders b"
                + " ON a.customer = b.customer AND a.amount < b.amount");
        QUERIES.put("left-joined", "SELECT a.customer, a.amount, b.n FROM orders a LEFT JOIN"
                + " (SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer) b ON a.customer = b.customer");
        QUERIES.put("near", "SELECT a.customer, a.amount, b.amount FROM orders a JOIN orders b"
                + " ON a.item = b.item AND a.rowtime BETWEEN b.rowtime - INTERVAL '5' SECOND AND b.rowtime");
        QUERIES.put("windows", "SELECT customer, window_start, SUM(amount) FROM"
                + " TABLE(TUMBLE(TABLE orders, DESCRIPTOR(rowtime), INTERVAL '17' SECOND))"
                + " GROUP BY customer, window_start, window_end");
        QUERIES.put("old-windows", "SELECT customer, HOP_START(rowtime, INTERVAL '7' SECOND, INTERVAL '21' SECOND),"
                + " SUM(amount) FROM orders GROUP BY customer, HOP(rowtime, INTERVAL '7' SECOND, INTERVAL '21' SECOND)");
        QUERIES.put("sessions", "SELECT customer, SESSION_START(rowtime, INTERVAL '6' SECOND), COUNT(DISTINCT item)"
                + " FROM orders GROUP BY customer, SESSION(rowtime, INTERVAL '6' SECOND)");
        QUERIES.put("over", "SELECT customer, amount, SUM(amount) OVER (PARTITION BY customer ORDER BY rowtime"
                + " RANGE BETWEEN INTERVAL '20' SECOND PRECEDING AND CURRENT ROW) FROM orders");
        QUERIES.put("best", "SELECT customer, item, amount FROM (SELECT *, ROW_NUMBER() OVER"
                + " (PARTITION BY customer ORDER BY amount DESC) AS place FROM orders) WHERE place <= 2");
        QUERIES.put("last", "SELECT customer, item, amount FROM (SELECT *, ROW_NUMBER() OVER"
                + " (PARTITION BY customer ORDER BY rowtime DESC) AS place FROM orders) WHERE place = 1");
        QUERIES.put("columns", "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY customer, dec1"
                + " ORDER BY amount) AS place FROM (SELECT customer, amount, rowtime, CAST(amount AS DECIMAL(10, 2)) AS dec1,"
                + " CAST(amount AS DECIMAL(30, 2)) AS dec2, CAST(item AS VARBINARY) AS bin1, ROW(item, amount) AS row1"
                + " FROM orders)) WHERE place <= 2");
        QUERIES.put("matched", "SELECT * FROM orders MATCH_RECOGNIZE (PARTITION BY customer ORDER BY rowtime"
                + " MEASURES A.amount AS little, C.amount AS much AFTER MATCH SKIP TO NEXT ROW"
                + " PATTERN (A B*? C) WITHIN INTERVAL '1' MINUTE DEFINE A AS A.amount < 30, C AS C.amount > 70)");
    }

    private SqlJob() {}

    static void build(
            StreamExecutionEnvironment environment, Orders source, boolean isMigrated, List<String> wanted) {
        DataStream<Row> orders =
                environment.addSource(source, Orders.TYPE).setParallelism(1).uid("orders");
        Beside.build(orders, isMigrated);
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
        Schema schema = Schema.newBuilder()
                .column("customer", "STRING")
                .column("item", "STRING")
                .column("amount", "BIGINT")
                .columnByMetadata("rowtime", "TIMESTAMP_LTZ(3)")
                .watermark("rowtime", "SOURCE_WATERMARK()")
                .build();
        tables.createTemporaryView("orders", tables.fromDataStream(orders, schema));
        QUERIES.forEach((name, query) -> {
            if (wanted.isEmpty() || wanted.contains(name)) {
                Sayer.say(tables.toChangelogStream(tables.sqlQuery(query)), name);
            }
        });
    }
}
