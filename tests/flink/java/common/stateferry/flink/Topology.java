package stateferry.flink;

import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.datastream.WindowedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;
import stateferry.flink.types.Kinds;

/** The job graph of a scenario: one source that all keyed operators listen to, and one for each plain operator. */
final class Topology {
    private static final String GATE = "gate";
    private final String board;
    private final Spec.Job job;

    Topology(String board, Spec.Job job) {
        this.board = board;
        this.job = job;
    }

    @SuppressWarnings("unchecked")
    JobGraph graph(Configuration configuration) {
        register(job.registered, configuration);
        StreamExecutionEnvironment env = environment(configuration);
        env.setParallelism(job.parallelism);
        if (job.maxParallelism != null) {
            env.setMaxParallelism(job.maxParallelism);
        }
        DataStream<Tuple4<Integer, Integer, Long, Long>> shared = env
                .addSource(new GateSource(GATE, board, job, 0), GATE, WindowContents.ELEMENT)
                .setParallelism(1)
                .uid(GATE);
        for (int i = 0; i < job.operators.size(); i++) {
            Spec.Operator operator = job.operators.get(i);
            SingleOutputStreamOperator<?> added = switch (operator.type) {
                case "keyed" -> shared
                        .keyBy(new KeyByIndex(job.seed, operator), (TypeInformation<Object>) keyInfo(operator))
                        .transform(operator.name(), WindowContents.ELEMENT, new ScenarioOperator(board, job, operator));
                case "plain" -> plain(env, operator);
                case "window" -> window(shared, operator, i);
                case "interval-join", "window-join", "co-process" -> joined(shared, operator, i);
                case "source" -> source(env, operator);
                case "sink" -> sink(shared, operator, i);
                default -> throw new IllegalArgumentException("expected a type of operator, found " + operator.type);
            };
            added.uid(operator.uid);
            if (operator.parallelism != null) {
                added.setParallelism(operator.parallelism);
            }
            if (operator.maxParallelism != null) {
                added.setMaxParallelism(operator.maxParallelism);
            }
        }
        return env.getStreamGraph().getJobGraph();
    }

    static void register(List<String> pojos, Configuration configuration) {
        if (!pojos.isEmpty()) {
            configuration.setString("pipeline.serialization-config", pojos.stream()
                    .map(name -> "stateferry.flink.pojo." + name + ": {type: pojo}")
                    .collect(Collectors.joining(", ", "[", "]")));
        }
    }

    static StreamExecutionEnvironment environment(Configuration configuration) {
        return StreamExecutionEnvironment.getExecutionEnvironment(configuration);
    }

    /** The subtasks that must report before everything is written or shown. */
    Set<String> reports(boolean restored) {
        Set<String> out = new HashSet<>(Set.of(Board.reportOf(GATE, 0)));
        for (Spec.Operator operator : job.operators) {
            int parallelism = operator.parallelism == null ? job.parallelism : operator.parallelism;
            boolean plain = operator.type.equals("plain");
            boolean reporting = plain || operator.type.equals("keyed");
            for (int i = restored ? operator.finished : 0; reporting && i < parallelism; i++) {
                out.add(Board.reportOf(operator.uid, i));
                if (plain) {
                    out.add(Board.reportOf(gateOf(operator), i));
                }
            }
        }
        return out;
    }

    private static String gateOf(Spec.Operator operator) {
        return operator.uid + "-gate";
    }

    /** A plain operator's own source runs subtask by subtask beside it, so that both end together. */
    private SingleOutputStreamOperator<?> plain(StreamExecutionEnvironment env, Spec.Operator operator) {
        String source = gateOf(operator);
        SingleOutputStreamOperator<Tuple4<Integer, Integer, Long, Long>> gate =
                env.addSource(new GateSource(source, board, job, operator.finished), source, WindowContents.ELEMENT).uid(source);
        if (operator.parallelism != null) {
            gate.setParallelism(operator.parallelism);
        }
        if (operator.maxParallelism != null) {
            gate.setMaxParallelism(operator.maxParallelism);
        }
        return gate.transform(operator.name(), WindowContents.ELEMENT, new ScenarioOperator(board, job, operator));
    }

    /** A source that keeps its splits in operator state and has a coordinator with state of its own. */
    private static SingleOutputStreamOperator<?> source(StreamExecutionEnvironment env, Spec.Operator operator) {
        SingleOutputStreamOperator<Long> numbers = env
                .fromSource(new NumberSequenceSource(1, Integer.MAX_VALUE), WatermarkStrategy.noWatermarks(), operator.name());
        SingleOutputStreamOperator<Long> slow = numbers
                .filter(number -> {
                    Thread.sleep(1);
                    return false;
                })
                .uid(operator.uid + "-filter");
        if (operator.parallelism != null) {
            slow.setParallelism(operator.parallelism);
        }
        return numbers;
    }

    @SuppressWarnings("unchecked")
    private SingleOutputStreamOperator<?> window(
            DataStream<Tuple4<Integer, Integer, Long, Long>> shared, Spec.Operator operator, int index) {
        KeyedStream<Tuple4<Integer, Integer, Long, Long>, Object> keyed = shared
                .filter(element -> element.f0 == index)
                .setParallelism(1)
                .uid(operator.uid + "-filter")
                .keyBy(new KeyByIndex(job.seed, operator), (TypeInformation<Object>) keyInfo(operator));
        WindowedStream<Tuple4<Integer, Integer, Long, Long>, Object, TimeWindow> windows =
                (operator.asynchronous ? AsyncState.enabled(keyed) : keyed).window(WindowContents.assigner(operator));
        SingleOutputStreamOperator<?> added = switch (operator.function) {
            case "reduce" -> windows.reduce((one, other) -> Tuple4.of(one.f0, one.f1, one.f2, one.f3 + other.f3));
            case "aggregate" -> windows.aggregate(
                    new CountAndSum(), Types.TUPLE(Types.LONG, Types.LONG), Types.TUPLE(Types.LONG, Types.LONG));
            default -> windows.process(new CountElements(), Types.LONG);
        };
        return added.name(operator.name());
    }

    /** The sink has an id of its own: what is returned stands before it. */
    private SingleOutputStreamOperator<?> sink(
            DataStream<Tuple4<Integer, Integer, Long, Long>> shared, Spec.Operator operator, int index) {
        SingleOutputStreamOperator<Long> values =
                shared.filter(element -> element.f0 == index).map(element -> element.f3).returns(Types.LONG);
        values.sinkTo(new KeepingSink(board, operator)).uid(operator.uid + "-sink").name(operator.uid + "-sink");
        return values;
    }

    @SuppressWarnings("unchecked")
    private SingleOutputStreamOperator<?> joined(
            DataStream<Tuple4<Integer, Integer, Long, Long>> shared, Spec.Operator operator, int index) {
        KeyByIndex byIndex = new KeyByIndex(job.seed, operator);
        TypeInformation<Object> key = (TypeInformation<Object>) keyInfo(operator);
        SingleOutputStreamOperator<Tuple2<Integer, Long>> added =
                (SingleOutputStreamOperator<Tuple2<Integer, Long>>) Joined.add(
                        shared.filter(element -> Joined.goesLeft(element, index)).keyBy(byIndex, key),
                        shared.filter(element -> Joined.goesRight(element, index)).keyBy(byIndex, key),
                        operator);
        added.process(new Joined.Show(board, job, operator)).returns(Types.VOID);
        return added.name(operator.name());
    }

    private static TypeInformation<?> keyInfo(Spec.Operator operator) {
        return Kinds.parse(operator.key).info();
    }

    /** Elements carry their key's index. */
    private static final class KeyByIndex implements KeySelector<Tuple4<Integer, Integer, Long, Long>, Object> {
        private final long seed;
        private final Spec.Operator operator;
        private transient List<Object> keys;

        KeyByIndex(long seed, Spec.Operator operator) {
            this.seed = seed;
            this.operator = operator;
        }

        @Override
        public Object getKey(Tuple4<Integer, Integer, Long, Long> element) {
            if (keys == null) {
                keys = new Contents(seed).keys(operator);
            }
            return keys.get(element.f1 % keys.size());
        }
    }

    private static final class CountAndSum
            implements AggregateFunction<
                    Tuple4<Integer, Integer, Long, Long>, Tuple2<Long, Long>, Tuple2<Long, Long>> {
        @Override
        public Tuple2<Long, Long> createAccumulator() {
            return Tuple2.of(0L, 0L);
        }

        @Override
        public Tuple2<Long, Long> add(Tuple4<Integer, Integer, Long, Long> element, Tuple2<Long, Long> sums) {
            return Tuple2.of(sums.f0 + 1, sums.f1 + element.f3);
        }

        @Override
        public Tuple2<Long, Long> getResult(Tuple2<Long, Long> sums) {
            return sums;
        }

        @Override
        public Tuple2<Long, Long> merge(Tuple2<Long, Long> one, Tuple2<Long, Long> other) {
            return Tuple2.of(one.f0 + other.f0, one.f1 + other.f1);
        }
    }

    private static final class CountElements
            extends ProcessWindowFunction<Tuple4<Integer, Integer, Long, Long>, Long, Object, TimeWindow> {
        @Override
        public void process(
                Object key, Context context, Iterable<Tuple4<Integer, Integer, Long, Long>> elements, Collector<Long> out) {
            long count = 0;
            for (Object ignored : elements) {
                count++;
            }
            out.collect(count);
        }
    }
}
