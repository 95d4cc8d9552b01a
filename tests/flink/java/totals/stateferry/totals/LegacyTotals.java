package stateferry.totals;

import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * As it was: each purchase reads and writes all that its customer ever bought.
 *
 * <p>With {@code --declared hint} its map is declared as most people do it: then Flink 1 has Kryo write it, and Flink 2 a
 * serializer of maps that may be null.
 */
final class LegacyTotals extends KeyedProcessFunction<String, Purchase, Total> {
    private static final long serialVersionUID = 1L;
    private final Options options;
    private transient ValueState<Map<String, Long>> totals;

    LegacyTotals(Options options) {
        this.options = options;
    }

    @Override
    public void open(OpenContext context) {
        TypeInformation<Map<String, Long>> map = options.optional("declared").orElse("types").equals("hint")
                ? TypeInformation.of(new TypeHint<Map<String, Long>>() {})
                : Types.MAP(Types.STRING, Types.LONG);
        ValueStateDescriptor<Map<String, Long>> descriptor = new ValueStateDescriptor<>("mainState", map);
        options.timeToLive().ifPresent(descriptor::enableTimeToLive);
        totals = getRuntimeContext().getState(descriptor);
    }

    @Override
    public void processElement(Purchase purchase, Context context, Collector<Total> out) throws Exception {
        Map<String, Long> ofCustomer = totals.value();
        if (ofCustomer == null) {
            ofCustomer = new HashMap<>();
        }
        long total = ofCustomer.merge(purchase.item, purchase.amount, Long::sum);
        totals.update(ofCustomer);
        out.collect(Total.of(purchase, total));
    }
}
