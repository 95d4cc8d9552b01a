package stateferry.flink;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;

/** A job that looks for a small order of a customer, some more, and then a large one. */
final class CepJob {
    private static final long SMALL = 30;
    private static final long LARGE = 70;

    private CepJob() {}

    /** With {@code objects} the events are POJOs with collections, of which Flink 1 has Kryo write some. */
    static void build(StreamExecutionEnvironment environment, Orders source, boolean isMigrated, boolean objects) {
        DataStream<Row> orders =
                environment.addSource(source, Orders.TYPE).setParallelism(1).uid("orders");
        Beside.build(orders, isMigrated);
        if (objects) {
            DataStream<Basket> baskets = orders.map(Basket::of).returns(Basket.class).uid("baskets");
            find(baskets, basket -> basket.customer, basket -> basket.amount);
        } else {
            find(orders, order -> order.getFieldAs(0), order -> order.getFieldAs(2));
        }
    }

    private static <T> void find(DataStream<T> events, KeySelector<T, String> customer, KeySelector<T, Long> amount) {
        Pattern<T, T> pattern = Pattern.<T>begin("small")
                .where(SimpleCondition.of(event -> amount.getKey(event) < SMALL))
                .followedByAny("large")
                .where(SimpleCondition.of(event -> amount.getKey(event) > LARGE))
                .within(Duration.ofMinutes(1));
        DataStream<String> found = CEP.pattern(events.keyBy(customer, Types.STRING), pattern)
                .process(new Found<T>(), Types.STRING)
                .uid("pattern");
        Sayer.say(found, "found");
    }

    private static final class Found<T> extends PatternProcessFunction<T, String> {
        private static final long serialVersionUID = 1L;

        @Override
        public void processMatch(Map<String, List<T>> match, Context context, Collector<String> out) {
            out.collect(match.get("small") + " " + match.get("large"));
        }
    }
}
