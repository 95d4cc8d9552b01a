package stateferry.totals;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/** What the jobs have in common: where purchases come from and totals go to, and the uids by which state is found. */
final class Topology {
    private static final long CHECKPOINT_MILLIS = 500;
    private static final int SOURCES = 2;
    private static final long ENDLESS = 1_000_000_000L;

    private Topology() {}

    static void run(String name, Options options, KeyedProcessFunction<String, Purchase, Total> totals)
            throws Exception {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        environment.enableCheckpointing(CHECKPOINT_MILLIS);
        options.optional("max-parallelism").map(Integer::parseInt).ifPresent(environment::setMaxParallelism);
        long checkpointMillis = options.optional("checkpoint-millis").map(Long::parseLong).orElse(0L);
        int customers = Integer.parseInt(options.optional("customers").orElse("400"));
        int digits = Integer.parseInt(options.optional("digits").orElse("3"));
        double rate = Double.parseDouble(options.optional("rate").orElse("250"));
        DataGeneratorSource<Purchase> source = new DataGeneratorSource<>(
                new Purchase.Generator(customers, digits),
                ENDLESS,
                RateLimiterStrategy.perSecond(rate),
                Types.POJO(Purchase.class));
        DataStream<Purchase> purchases = environment
                .fromSource(source, WatermarkStrategy.noWatermarks(), "purchases")
                .uid("purchases")
                .setParallelism(SOURCES);
        DataStream<Total> shown = purchases.keyBy(purchase -> purchase.customer)
                .process(totals)
                .uid(options.optional("uid").orElse("main"))
                .name("totals");
        if (options.optional("beside").isPresent()) {
            shown = beside(shown);
        }
        shown.process(new FileSink(options.required("sink"), checkpointMillis))
                .returns(Types.VOID)
                .uid("sink")
                .name("sink");
        environment.execute(name);
    }

    /** Adds operators with state of other kinds. */
    private static DataStream<Total> beside(DataStream<Total> totals) {
        DataStream<Total> passed = totals.keyBy(total -> total.customer).process(new Beside()).uid("beside");
        passed.keyBy(total -> total.customer)
                .countWindow(Beside.WINDOW)
                .aggregate(new Beside.CountByItem(), Beside.CountByItem.accumulator(), Types.LONG)
                .uid("window")
                .sinkTo(new DiscardingSink<>())
                .uid("discarded");
        return passed;
    }
}
