package stateferry.flink;

import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ReducingState;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.time.Time;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.contrib.streaming.state.EmbeddedRocksDBStateBackend;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.runtime.state.StateBackend;
import org.apache.flink.runtime.state.hashmap.HashMapStateBackend;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.DiscardingSink;
import org.apache.flink.streaming.api.functions.source.SourceFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.util.Collector;
import stateferry.flink.pojo.Address;
import stateferry.flink.pojo.Color;
import stateferry.flink.pojo.Person;

/**
 * A savepoint by a Flink from 1.13 to 1.19. Arguments: the backend (rocksdb or hashmap), the format (CANONICAL or NATIVE),
 * whether there are states that Flink 2 doesn't read as they are, and an empty folder. {@code make_earlier_golden.py}
 * says what each key has.
 */
public final class EarlierSavepoints {
    private static final int KEYS = 12;
    private static final int PARALLELISM = 2;
    private static final int MAX_PARALLELISM = 8;
    private static final int MOST_TRIES = 60;
    private static final long YEAR_2100 = 4102444800000L;
    private static final long WINDOW = 1_700_000_040_000L;
    private static final long WIDTH = 60_000;
    private static final TypeInformation<Tuple4<Integer, Integer, Long, Long>> ELEMENT =
            Types.TUPLE(Types.INT, Types.INT, Types.LONG, Types.LONG);
    private static final AtomicInteger SEEN = new AtomicInteger();

    private EarlierSavepoints() {}

    public static void main(String[] arguments) throws Exception {
        String folder = arguments[3];
        Configuration configuration = new Configuration();
        configuration.set(TaskManagerOptions.NUM_TASK_SLOTS, PARALLELISM);
        configuration.setString("state.backend.rocksdb.memory.managed", "false");
        configuration.setString("state.storage.fs.memory-threshold", "0b");
        configuration.setString("state.checkpoint-storage", "filesystem");
        configuration.setString("state.checkpoints.dir", "file://" + folder + "/checkpoints");
        MiniClusterConfiguration cluster = new MiniClusterConfiguration.Builder()
                .setConfiguration(configuration)
                .setNumTaskManagers(1)
                .setNumSlotsPerTaskManager(PARALLELISM)
                .build();
        JobGraph job = job(configuration, backend(arguments[0], arguments[1]), Boolean.parseBoolean(arguments[2]));
        try (MiniCluster mini = new MiniCluster(cluster)) {
            mini.start();
            JobID id = mini.submitJob(job).get().getJobID();
            while (SEEN.get() < KEYS) {
                if (mini.getJobStatus(id).get().isGloballyTerminalState()) {
                    mini.requestJobResult(id).get().toJobExecutionResult(EarlierSavepoints.class.getClassLoader());
                }
                Thread.sleep(50);
            }
            // The windows may be behind.
            Thread.sleep(1000);
            System.out.println(stopped(mini, id, "file://" + folder, arguments[1]));
        }
        System.exit(0);
    }

    /** Flink refuses while a task isn't yet reported as running. */
    private static String stopped(MiniCluster mini, JobID id, String folder, String format) throws Exception {
        for (int tries = 0; ; tries++) {
            try {
                return Stopping.withSavepoint(mini, id, folder, format).get(2, TimeUnit.MINUTES);
            } catch (ExecutionException problem) {
                if (tries == MOST_TRIES) {
                    throw problem;
                }
                Thread.sleep(500);
            }
        }
    }

    private static JobGraph job(Configuration configuration, StateBackend backend, boolean breaking) {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        environment.setParallelism(PARALLELISM);
        environment.setMaxParallelism(MAX_PARALLELISM);
        environment.setStateBackend(backend);
        DataStream<Tuple4<Integer, Integer, Long, Long>> numbers = environment
                .addSource(new Numbers(), "numbers", ELEMENT)
                .uid("numbers")
                .setParallelism(1);
        numbers.keyBy(number -> "k" + number.f0, Types.STRING)
                .window(TumblingEventTimeWindows.of(org.apache.flink.streaming.api.windowing.time.Time.milliseconds(WIDTH)))
                .reduce((one, other) -> Tuple4.of(one.f0, one.f1, one.f2, one.f3 + other.f3))
                .uid("windows")
                .addSink(new DiscardingSink<>())
                .uid("windows-sink");
        numbers.keyBy(number -> "k" + number.f0, Types.STRING)
                .process(new Keeper(breaking), ELEMENT)
                .uid("main")
                .map(new Plain())
                .returns(ELEMENT)
                .uid("plain")
                .addSink(new DiscardingSink<>())
                .uid("sink");
        return environment.getStreamGraph().getJobGraph();
    }

    /** Native savepoints of RocksDB have its own files if checkpoints are incremental. */
    private static StateBackend backend(String name, String format) {
        boolean incremental = format.equals("NATIVE");
        return name.equals("rocksdb") ? new EmbeddedRocksDBStateBackend(incremental) : new HashMapStateBackend();
    }

    private static final class Numbers implements SourceFunction<Tuple4<Integer, Integer, Long, Long>> {
        private volatile boolean running = true;

        @Override
        public void run(SourceContext<Tuple4<Integer, Integer, Long, Long>> context) throws Exception {
            for (int number = 0; number < KEYS; number++) {
                context.collectWithTimestamp(Tuple4.of(number, number, WINDOW, 10L * number), WINDOW + number);
            }
            while (running) {
                Thread.sleep(50);
            }
        }

        @Override
        public void cancel() {
            running = false;
        }
    }

    private static final class Keeper
            extends KeyedProcessFunction<
                    String, Tuple4<Integer, Integer, Long, Long>, Tuple4<Integer, Integer, Long, Long>> {
        private final boolean breaking;
        private transient ValueState<Map<String, Long>> blob;
        private transient MapState<String, Long> entries;
        private transient ValueState<Boolean> flag;
        private transient ListState<String> names;
        private transient ValueState<Person> person;
        private transient ValueState<Tuple2<Long, String>> pair;
        private transient ValueState<List<String>> list;
        private transient ReducingState<Long> sum;
        private transient ValueState<Long> expiring;
        private transient ValueState<Object> object;
        private transient ValueState<Map<String, Long>> hinted;
        private transient ValueState<HashMap<String, Long>> hash;
        private transient ValueState<UUID> uuid;

        Keeper(boolean breaking) {
            this.breaking = breaking;
        }

        @Override
        public void open(Configuration configuration) {
            blob = value("blob", Types.MAP(Types.STRING, Types.LONG));
            entries = getRuntimeContext().getMapState(new MapStateDescriptor<>("entries", Types.STRING, Types.LONG));
            flag = value("flag", Types.BOOLEAN);
            names = getRuntimeContext().getListState(new ListStateDescriptor<>("names", Types.STRING));
            person = value("person", TypeInformation.of(Person.class));
            pair = value("pair", Types.TUPLE(Types.LONG, Types.STRING));
            list = value("list", Types.LIST(Types.STRING));
            sum = getRuntimeContext().getReducingState(new ReducingStateDescriptor<>("sum", Long::sum, Types.LONG));
            ValueStateDescriptor<Long> descriptor = new ValueStateDescriptor<>("expiring", Types.LONG);
            descriptor.enableTimeToLive(StateTtlConfig.newBuilder(Time.days(36500)).build());
            expiring = getRuntimeContext().getState(descriptor);
            object = value("object", Types.GENERIC(Object.class));
            if (breaking) {
                hinted = value("hinted", TypeInformation.of(new TypeHint<Map<String, Long>>() {}));
                hash = value("hash", TypeInformation.of(new TypeHint<HashMap<String, Long>>() {}));
                uuid = value("uuid", TypeInformation.of(UUID.class));
            }
        }

        private <T> ValueState<T> value(String name, TypeInformation<T> type) {
            return getRuntimeContext().getState(new ValueStateDescriptor<>(name, type));
        }

        @Override
        public void processElement(
                Tuple4<Integer, Integer, Long, Long> element,
                Context context,
                Collector<Tuple4<Integer, Integer, Long, Long>> out)
                throws Exception {
            int number = element.f0;
            HashMap<String, Long> map = new HashMap<>();
            for (int entry = 0; entry < number % 4; entry++) {
                map.put("u" + entry, 10L * number + entry);
            }
            blob.update(map);
            entries.putAll(map);
            flag.update(number % 2 == 0);
            List<String> all = new ArrayList<>();
            for (int name = 0; name <= number % 3; name++) {
                all.add("n" + name);
            }
            names.addAll(all);
            person.update(person(number));
            pair.update(Tuple2.of((long) number, "p" + number));
            list.update(all);
            sum.add((long) number);
            sum.add(1L);
            expiring.update((long) number);
            object.update((long) number);
            if (breaking) {
                hinted.update(map);
                hash.update(map);
                uuid.update(new UUID(number, number));
            }
            context.timerService().registerProcessingTimeTimer(YEAR_2100 + number);
            context.timerService().registerEventTimeTimer(YEAR_2100 + number);
            out.collect(element);
            SEEN.incrementAndGet();
        }

        private static Person person(int number) {
            Person out = new Person();
            out.name = "name" + number;
            out.age = number;
            out.score = 3L * number;
            out.weight = number / 4.0;
            out.active = number % 2 == 1;
            out.home = new Address();
            out.home.street = "street" + number;
            out.home.number = number;
            out.favourite = Color.values()[number % Color.values().length];
            out.seen = Instant.ofEpochSecond(number);
            out.aliases = new String[] {"a" + number};
            return out;
        }
    }

    /** Says what it holds when it is asked for: its subtasks share the elements of the list. */
    private static final class Plain
            extends org.apache.flink.api.common.functions.RichMapFunction<
                    Tuple4<Integer, Integer, Long, Long>, Tuple4<Integer, Integer, Long, Long>>
            implements CheckpointedFunction {
        @Override
        public Tuple4<Integer, Integer, Long, Long> map(Tuple4<Integer, Integer, Long, Long> element) {
            return element;
        }

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            int subtask = getRuntimeContext().getIndexOfThisSubtask();
            ListState<String> split =
                    context.getOperatorStateStore().getListState(new ListStateDescriptor<>("split", Types.STRING));
            ListState<Tuple2<Long, String>> union = context.getOperatorStateStore()
                    .getUnionListState(new ListStateDescriptor<>("union", Types.TUPLE(Types.LONG, Types.STRING)));
            for (int element = subtask; element < 6; element += PARALLELISM) {
                split.add("e" + element);
                union.add(Tuple2.of((long) element, "e" + element));
            }
            context.getOperatorStateStore()
                    .getBroadcastState(new MapStateDescriptor<>("rules", Types.STRING, Types.LONG))
                    .put("rule", 1L);
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) {}
    }
}
