package stateferry.flink;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.time.Time;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.contrib.streaming.state.RocksDBStateBackend;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.runtime.state.StateBackend;
import org.apache.flink.runtime.state.filesystem.FsStateBackend;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.DiscardingSink;
import org.apache.flink.streaming.api.functions.source.SourceFunction;
import org.apache.flink.util.Collector;

/**
 * A savepoint as Flink took it before 1.13. Arguments: the backend (rocksdb or heap), whether key groups are compressed,
 * whether values in "blob" have a time to live, the largest size of state that is kept in the metadata, and an empty
 * folder.
 *
 * <p>Key {@code k<i>} has i % 4 entries {@code u<j>} = 10 i + j in "blob", the same in "entries" as a map state, "flag" =
 * (i is even), "names" = n0 .. n(i % 3), and a timer at 4102444800000 + i (in the year 2100).
 */
public final class OldSavepoints {
    private static final int KEYS = 24;
    private static final int PARALLELISM = 2;
    private static final int MAX_PARALLELISM = 8;
    private static final AtomicInteger SEEN = new AtomicInteger();

    private OldSavepoints() {}

    public static void main(String[] arguments) throws Exception {
        String folder = arguments[4];
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        environment.setParallelism(PARALLELISM);
        environment.setMaxParallelism(MAX_PARALLELISM);
        environment.getConfig().setUseSnapshotCompression(Boolean.parseBoolean(arguments[1]));
        environment.setStateBackend(backend(arguments[0], folder, Integer.parseInt(arguments[3])));
        environment
                .addSource(new Numbers())
                .uid("numbers")
                .setParallelism(1)
                .keyBy(number -> "k" + number, Types.STRING)
                .process(new Keeper(Boolean.parseBoolean(arguments[2])))
                .uid("main")
                .addSink(new DiscardingSink<>())
                .uid("nowhere");
        JobGraph job = environment.getStreamGraph().getJobGraph();
        Configuration configuration = new Configuration();
        configuration.set(TaskManagerOptions.NUM_TASK_SLOTS, PARALLELISM);
        MiniClusterConfiguration cluster = new MiniClusterConfiguration.Builder()
                .setConfiguration(configuration)
                .setNumTaskManagers(1)
                .setNumSlotsPerTaskManager(PARALLELISM)
                .build();
        try (MiniCluster mini = new MiniCluster(cluster)) {
            mini.start();
            JobID id = mini.submitJob(job).get().getJobID();
            while (SEEN.get() < KEYS) {
                Thread.sleep(50);
            }
            System.out.println(mini.triggerSavepoint(id, "file://" + folder, true).get());
        }
        System.exit(0);
    }

    private static StateBackend backend(String name, String folder, int inlined) throws Exception {
        FsStateBackend files = new FsStateBackend(java.net.URI.create("file://" + folder + "/checkpoints"), inlined);
        return name.equals("rocksdb") ? new RocksDBStateBackend(files) : files;
    }

    private static final class Numbers implements SourceFunction<Integer> {
        private volatile boolean running = true;

        @Override
        public void run(SourceContext<Integer> context) throws Exception {
            for (int number = 0; number < KEYS; number++) {
                context.collect(number);
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

    private static final class Keeper extends KeyedProcessFunction<String, Integer, String> {
        private transient ValueState<Map<String, Long>> blob;
        private transient MapState<String, Long> entries;
        private transient ValueState<Boolean> flag;
        private transient ListState<String> names;
        private final boolean expires;

        Keeper(boolean expires) {
            this.expires = expires;
        }

        @Override
        public void open(Configuration configuration) {
            ValueStateDescriptor<Map<String, Long>> maps =
                    new ValueStateDescriptor<>("blob", Types.MAP(Types.STRING, Types.LONG));
            if (expires) {
                maps.enableTimeToLive(StateTtlConfig.newBuilder(Time.days(36500)).build());
            }
            blob = getRuntimeContext().getState(maps);
            entries = getRuntimeContext()
                    .getMapState(new MapStateDescriptor<>("entries", Types.STRING, Types.LONG));
            flag = getRuntimeContext().getState(new ValueStateDescriptor<>("flag", Types.BOOLEAN));
            names = getRuntimeContext().getListState(new ListStateDescriptor<>("names", Types.STRING));
        }

        @Override
        public void processElement(Integer number, Context context, Collector<String> out) throws Exception {
            Map<String, Long> map = new HashMap<>();
            for (int entry = 0; entry < number % 4; entry++) {
                map.put("u" + entry, 10L * number + entry);
            }
            blob.update(map);
            entries.putAll(map);
            flag.update(number % 2 == 0);
            for (int name = 0; name <= number % 3; name++) {
                names.add("n" + name);
            }
            context.timerService().registerProcessingTimeTimer(4102444800000L + number);
            SEEN.incrementAndGet();
        }
    }
}
