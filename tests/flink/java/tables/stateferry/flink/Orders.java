package stateferry.flink;

import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.types.Row;

/** Gives the orders from one number up to another (customer, item, amount), a watermark behind them, and then waits. */
final class Orders extends LegacySource<Row> {
    static final TypeInformation<Row> TYPE = Types.ROW_NAMED(
            new String[] {"customer", "item", "amount"}, Types.STRING, Types.STRING, Types.LONG);
    private static final long serialVersionUID = 1L;
    private static final int CUSTOMERS = 5;
    private static final int ITEMS = 3;
    private static final int AMOUNTS = 97;
    private static final long POLL_MILLIS = 10;
    private static final long APART_MILLIS = 1000;
    private final int from;
    private final int to;
    private volatile boolean running = true;

    Orders(int from, int to) {
        this.from = from;
        this.to = to;
    }

    private static long timeOf(int order) {
        return 1_700_000_000_000L + order * APART_MILLIS;
    }

    private static Row order(int number) {
        int mixed = number * 7919 % AMOUNTS;
        return Row.of("customer " + mixed % CUSTOMERS, "item " + number % ITEMS, (long) mixed);
    }

    @Override
    public void run(SourceContext<Row> context) throws Exception {
        synchronized (context.getCheckpointLock()) {
            for (int i = from; i < to; i++) {
                context.collectWithTimestamp(order(i), timeOf(i));
            }
            context.emitWatermark(new Watermark(timeOf(to - 1)));
        }
        while (running) {
            Thread.sleep(POLL_MILLIS);
        }
    }

    @Override
    public void cancel() {
        running = false;
    }
}
