package stateferry.flink;

import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;

/** Adds up amounts per customer and item, in a map in a {@link ValueState} or, once that is migrated, in a MapState. */
final class Beside extends KeyedProcessFunction<String, Row, String> {
    private static final String UID = "beside";
    private static final long serialVersionUID = 1L;
    private final boolean isMigrated;
    private transient ValueState<Map<String, Long>> legacy;
    private transient MapState<String, Long> totals;

    private Beside(boolean isMigrated) {
        this.isMigrated = isMigrated;
    }

    static void build(DataStream<Row> orders, boolean isMigrated) {
        DataStream<String> shown = orders.keyBy(order -> order.<String>getFieldAs(0), Types.STRING)
                .process(new Beside(isMigrated))
                .returns(Types.STRING)
                .uid(UID);
        Sayer.say(shown, UID);
    }

    @Override
    public void open(OpenContext context) {
        if (isMigrated) {
            totals = getRuntimeContext().getMapState(new MapStateDescriptor<>("totals-map", Types.STRING, Types.LONG));
        } else {
            legacy = getRuntimeContext()
                    .getState(new ValueStateDescriptor<>("totals", Types.MAP(Types.STRING, Types.LONG)));
        }
    }

    @Override
    public void processElement(Row order, Context context, Collector<String> out) throws Exception {
        Map<String, Long> all = new HashMap<>();
        if (isMigrated) {
            totals.entries().forEach(entry -> all.put(entry.getKey(), entry.getValue()));
        } else if (legacy.value() != null) {
            all.putAll(legacy.value());
        }
        String item = order.getFieldAs(1);
        all.merge(item, order.getFieldAs(2), Long::sum);
        if (isMigrated) {
            totals.put(item, all.get(item));
        } else {
            legacy.update(all);
        }
        out.collect(context.getCurrentKey() + " " + new TreeMap<>(all));
    }
}
