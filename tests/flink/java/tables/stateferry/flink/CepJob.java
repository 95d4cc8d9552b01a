package stateferry.flink;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.typeinfo.Types;
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

    static void build(StreamExecutionEnvironment environment, Orders source, boolean isMigrated) {
        DataStream<Row> orders =
                environment.addSource(source, Orders.TYPE).setParallelism(1).uid("orders");
        Beside.build(orders, isMigrated);
        Pattern<Row, Row> pattern = Pattern.<Row>begin("small")
                .where(SimpleCondition.of(order -> order.<Long>getFieldAs(2) < SMALL))
                .followedByAny("large")
                .where(SimpleCondition.of(order -> order.<Long>getFieldAs(2) > LARGE))
                .within(Duration.ofMinutes(1));
        DataStream<String> found = CEP.pattern(
                        orders.keyBy(order -> order.<String>getFieldAs(0), Types.STRING), pattern)
                .process(new Found(), Types.STRING);
        Sayer.say(found, "found");
    }

    private static final class Found extends PatternProcessFunction<Row, String> {
        private static final long serialVersionUID = 1L;

        @Override
        public void processMatch(Map<String, List<Row>> match, Context context, Collector<String> out) {
            out.collect(match.get("small") + " " + match.get("large"));
        }
    }
}
