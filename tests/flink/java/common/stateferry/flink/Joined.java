package stateferry.flink;

import java.time.Duration;
import java.util.List;
import java.util.Set;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.streaming.api.functions.co.KeyedCoProcessFunction;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.util.Collector;

/**
 * Operators of Flink with two inputs. The left elements come before the savepoint, the right ones after it: what they
 * are joined to shows what the operator has restored.
 */
final class Joined {
    private static final Set<String> TYPES = Set.of("interval-join", "window-join", "co-process");
    private static final Duration WIDTH = Duration.ofMinutes(1);
    private static final long BEGIN = 1_700_000_040_000L;
    private static final TypeInformation<Tuple2<Integer, Long>> RESULT = Types.TUPLE(Types.INT, Types.LONG);

    private Joined() {}

    static boolean isOne(Spec.Operator operator) {
        return TYPES.contains(operator.type);
    }

    /** Emits an element for each key: of the left input if the job writes, else of the right one. Returns how many. */
    static int emit(Spec.Job job, boolean writing, WindowContents.Emitter emitter) {
        int count = 0;
        for (int i = 0; i < job.operators.size(); i++) {
            Spec.Operator operator = job.operators.get(i);
            int keys = isOne(operator) ? new Contents(job.seed).keys(operator).size() : 0;
            for (int key = 0; key < keys; key++) {
                long timestamp = BEGIN + key;
                emitter.emit(Tuple4.of(i, key, timestamp, writing ? left(key) : right(key)), timestamp);
                count++;
            }
        }
        return count;
    }

    private static long left(int key) {
        return 1000L * key;
    }

    private static long right(int key) {
        return 2L * key + 1;
    }

    private static boolean isLeft(Tuple4<Integer, Integer, Long, Long> element) {
        return element.f3 % 2 == 0;
    }

    static void expect(Spec.Job job, Spec.Operator operator, int maxParallelism, Lines lines) {
        List<Object> keys = new Contents(job.seed).keys(operator);
        for (int key = 0; key < keys.size(); key++) {
            show(lines, keys.get(key), left(key) + right(key), maxParallelism);
        }
    }

    private static void show(Lines lines, Object key, long sum, int maxParallelism) {
        Spec.State joined = new Spec.State();
        joined.name = "joined";
        joined.type = "Long";
        int group = KeyGroupRangeAssignment.assignToKeyGroup(key, maxParallelism);
        lines.content(joined, key, VoidNamespace.INSTANCE, group, sum);
    }

    static SingleOutputStreamOperator<?> add(
            KeyedStream<Tuple4<Integer, Integer, Long, Long>, Object> left,
            KeyedStream<Tuple4<Integer, Integer, Long, Long>, Object> right,
            Spec.Operator operator) {
        return switch (operator.type) {
            case "interval-join" -> left.intervalJoin(right).between(WIDTH.negated(), WIDTH).process(new Pairs());
            // Flink 1.20 says less of what this is.
            case "window-join" -> (SingleOutputStreamOperator<?>) (DataStream<?>) left.join(right)
                    .where(left.getKeySelector(), left.getKeyType())
                    .equalTo(right.getKeySelector(), right.getKeyType())
                    .window(TumblingEventTimeWindows.of(WIDTH))
                    .apply((one, other) -> Tuple2.of(one.f1, one.f3 + other.f3), RESULT);
            default -> left.connect(right).process(new Sums(), RESULT);
        };
    }

    static boolean goesLeft(Tuple4<Integer, Integer, Long, Long> element, int index) {
        return element.f0 == index && isLeft(element);
    }

    static boolean goesRight(Tuple4<Integer, Integer, Long, Long> element, int index) {
        return element.f0 == index && !isLeft(element);
    }

    private static final class Pairs
            extends ProcessJoinFunction<
                    Tuple4<Integer, Integer, Long, Long>, Tuple4<Integer, Integer, Long, Long>, Tuple2<Integer, Long>> {
        @Override
        public void processElement(
                Tuple4<Integer, Integer, Long, Long> left,
                Tuple4<Integer, Integer, Long, Long> right,
                Context context,
                Collector<Tuple2<Integer, Long>> out) {
            out.collect(Tuple2.of(left.f1, left.f3 + right.f3));
        }
    }

    /** Keeps the left value, and a timer that is not due before the right one has come. */
    private static final class Sums
            extends KeyedCoProcessFunction<
                    Object,
                    Tuple4<Integer, Integer, Long, Long>,
                    Tuple4<Integer, Integer, Long, Long>,
                    Tuple2<Integer, Long>> {
        private transient ValueState<Long> value;

        @Override
        public void open(OpenContext context) {
            value = getRuntimeContext().getState(new ValueStateDescriptor<>("value", Types.LONG));
        }

        @Override
        public void processElement1(
                Tuple4<Integer, Integer, Long, Long> left, Context context, Collector<Tuple2<Integer, Long>> out)
                throws Exception {
            value.update(left.f3);
            context.timerService().registerEventTimeTimer(left.f2 + WIDTH.toMillis());
        }

        @Override
        public void processElement2(
                Tuple4<Integer, Integer, Long, Long> right, Context context, Collector<Tuple2<Integer, Long>> out)
                throws Exception {
            value.update(value.value() + right.f3);
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext context, Collector<Tuple2<Integer, Long>> out)
                throws Exception {
            out.collect(Tuple2.of((int) ((timestamp - WIDTH.toMillis()) - BEGIN), value.value()));
        }
    }

    /** Writes what has been joined to the board. */
    static final class Show extends ProcessFunction<Tuple2<Integer, Long>, Void> {
        private final String board;
        private final Spec.Job job;
        private final Spec.Operator operator;

        Show(String board, Spec.Job job, Spec.Operator operator) {
            this.board = board;
            this.job = job;
            this.operator = operator;
        }

        @Override
        public void processElement(Tuple2<Integer, Long> joined, Context context, Collector<Void> out) {
            Board shared = Board.of(board);
            Object key = new Contents(job.seed).keys(operator).get(joined.f0);
            show(new Lines(operator, shared::write), key, joined.f1, job.maxParallelism);
            shared.timersDue.decrementAndGet();
        }
    }
}
