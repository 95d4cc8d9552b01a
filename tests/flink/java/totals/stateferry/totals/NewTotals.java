package stateferry.totals;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** As it is to be: each purchase reads and writes one row. */
final class NewTotals extends KeyedProcessFunction<String, Purchase, Total> {
    private static final long serialVersionUID = 1L;
    private final Options options;
    private transient MapState<String, Long> totals;

    NewTotals(Options options) {
        this.options = options;
    }

    @Override
    public void open(OpenContext context) {
        MapStateDescriptor<String, Long> descriptor =
                new MapStateDescriptor<>("newMainState", Types.STRING, Types.LONG);
        options.timeToLive().ifPresent(descriptor::enableTimeToLive);
        totals = getRuntimeContext().getMapState(descriptor);
    }

    @Override
    public void processElement(Purchase purchase, Context context, Collector<Total> out) throws Exception {
        Long before = totals.get(purchase.item);
        long total = before == null ? purchase.amount : before + purchase.amount;
        totals.put(purchase.item, total);
        out.collect(Total.of(purchase, total));
    }
}
