package stateferry.totals;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Passes totals on, and keeps what another Flink would read wrongly: maps by Kryo, a POJO with a list, timers. It holds
 * what it finds against what comes in, and fails if anything was lost or came twice. A timer that was lost leaves its time
 * in the state {@code due}.
 */
final class Beside extends KeyedProcessFunction<String, Total, Total> {
    static final int WINDOW = 20;
    private static final long serialVersionUID = 1L;
    private static final int REMEMBERED = 5;
    private static final long TIMER_MILLIS = 2_000;
    private transient ValueState<HashMap<String, Long>> last;
    private transient ValueState<Recent> recent;
    private transient ValueState<Long> due;

    /** The newest totals of a customer, the newest at the end, and how many there were. */
    public static final class Recent {
        public long count;
        public List<String> totals = new ArrayList<>();
    }

    @Override
    public void open(OpenContext context) {
        last = getRuntimeContext().getState(new ValueStateDescriptor<>("last", mapByKryo()));
        recent = getRuntimeContext().getState(new ValueStateDescriptor<>("recent", Types.POJO(Recent.class)));
        due = getRuntimeContext().getState(new ValueStateDescriptor<>("due", Types.LONG));
    }

    private static TypeInformation<HashMap<String, Long>> mapByKryo() {
        return TypeInformation.of(new TypeHint<HashMap<String, Long>>() {});
    }

    @Override
    public void processElement(Total total, Context context, Collector<Total> out) throws Exception {
        HashMap<String, Long> totals = last.value() == null ? new HashMap<>() : last.value();
        long before = totals.getOrDefault(total.item, 0L);
        check(total.total - before == Purchase.amountOf(total.index), total + " follows a total of " + before);
        totals.put(total.item, total.total);
        last.update(totals);

        Recent newest = recent.value() == null ? new Recent() : recent.value();
        check(newest.totals.size() == Math.min(newest.count, REMEMBERED), newest.count + ": " + newest.totals);
        newest.count++;
        newest.totals.add(total.item + "=" + total.total);
        if (newest.totals.size() > REMEMBERED) {
            newest.totals.remove(0);
        }
        for (String one : newest.totals) {
            String[] parts = one.split("=");
            check(totals.get(parts[0]) >= Long.parseLong(parts[1]), one + " is newer than " + totals);
        }
        recent.update(newest);
        setTimer(context);
        out.collect(total);
    }

    private void setTimer(Context context) throws Exception {
        long now = System.currentTimeMillis();
        if (due.value() == null) {
            due.update(now + TIMER_MILLIS);
            context.timerService().registerProcessingTimeTimer(now + TIMER_MILLIS);
        }
    }

    @Override
    public void onTimer(long at, OnTimerContext context, Collector<Total> out) throws Exception {
        check(due.value() != null && due.value() == at, "a timer of " + at + " has fired, expected " + due.value());
        due.clear();
    }

    private static void check(boolean isTrue, String otherwise) {
        if (!isTrue) {
            throw new IllegalStateException(otherwise);
        }
    }

    /** Counts a window's totals by item, in a map by Kryo: a full window has as many as it has elements. */
    static final class CountByItem implements AggregateFunction<Total, HashMap<String, Long>, Long> {
        private static final long serialVersionUID = 1L;

        static TypeInformation<HashMap<String, Long>> accumulator() {
            return mapByKryo();
        }

        @Override
        public HashMap<String, Long> createAccumulator() {
            return new HashMap<>();
        }

        @Override
        public HashMap<String, Long> add(Total total, HashMap<String, Long> counts) {
            counts.merge(total.item, 1L, Long::sum);
            return counts;
        }

        @Override
        public Long getResult(HashMap<String, Long> counts) {
            long sum = counts.values().stream().mapToLong(Long::longValue).sum();
            check(sum == WINDOW, "a window of " + WINDOW + " totals has " + counts);
            return sum;
        }

        @Override
        public HashMap<String, Long> merge(HashMap<String, Long> one, HashMap<String, Long> other) {
            throw new UnsupportedOperationException("these windows aren't merged");
        }
    }
}
