package stateferry.benchmark;

import java.util.Map;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.state.api.OperatorIdentifier;
import org.apache.flink.state.api.OperatorTransformation;
import org.apache.flink.state.api.SavepointReader;
import org.apache.flink.state.api.SavepointWriter;
import org.apache.flink.state.api.functions.KeyedStateBootstrapFunction;
import org.apache.flink.state.api.functions.KeyedStateReaderFunction;
import org.apache.flink.state.rocksdb.EmbeddedRocksDBStateBackend;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;

/**
 * Turns a {@code ValueState<Map<String, Long>>} into a {@code MapState<String, Long>} as a user of the State Processor
 * API would who cares for speed: streaming mode, RocksDB on both sides, one record for each key with its whole map, no
 * copies between chained functions, no Kryo, all of a map in one write batch.
 *
 * <p>Arguments: savepoint, target, folder for RocksDB, parallelism, megabytes for RocksDB, max parallelism, and {@code
 * migrate} or {@code rescale}: the latter writes the maps as they are, into a savepoint of that max parallelism.
 */
public final class Convert {
    private static final TypeInformation<Map<String, Long>> MAP = Types.MAP(Types.STRING, Types.LONG);
    private static final TypeInformation<Tuple2<String, Map<String, Long>>> KEY_WITH_MAP =
            Types.TUPLE(Types.STRING, MAP);
    private static final OperatorIdentifier OPERATOR = OperatorIdentifier.forUid("main");

    private Convert() {}

    public static void main(String[] args) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("io.tmp.dirs", args[2]);
        settings.setString("taskmanager.memory.managed.size", args[4] + "m");
        settings.setString("taskmanager.memory.network.min", "64m");
        settings.setString("taskmanager.memory.network.max", "64m");
        settings.setString("pipeline.object-reuse", "true");
        settings.setString("rest.bind-address", "127.0.0.1");
        settings.setString("rest.address", "127.0.0.1");
        settings.setString("rest.bind-port", "0");
        // What RocksDB writes here is read once and thrown away.
        settings.setString("state.backend.rocksdb.compression.per.level", "NO_COMPRESSION");
        int parallelism = Integer.parseInt(args[3]);
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.createLocalEnvironment(parallelism, settings);
        environment.setRuntimeMode(RuntimeExecutionMode.STREAMING);

        DataStream<Tuple2<String, Map<String, Long>>> maps =
                SavepointReader.read(environment, args[0], new EmbeddedRocksDBStateBackend())
                        .readKeyedState(OPERATOR, new Legacy(), Types.STRING, KEY_WITH_MAP);
        SavepointWriter.newSavepoint(environment, new EmbeddedRocksDBStateBackend(), Integer.parseInt(args[5]))
                .withOperator(
                        OPERATOR,
                        OperatorTransformation.bootstrapWith(maps)
                                .keyBy(map -> map.f0, Types.STRING)
                                .transform(args[6].equals("rescale") ? new Kept() : new Migrated()))
                .write(args[1]);
        environment.execute(args[6]);
    }

    private static final class Legacy extends KeyedStateReaderFunction<String, Tuple2<String, Map<String, Long>>> {
        private transient ValueState<Map<String, Long>> state;

        @Override
        public void open(OpenContext context) {
            state = getRuntimeContext().getState(new ValueStateDescriptor<>("mainState", MAP));
        }

        @Override
        public void readKey(String key, Context context, Collector<Tuple2<String, Map<String, Long>>> out)
                throws Exception {
            Map<String, Long> map = state.value();
            if (map != null) {
                out.collect(Tuple2.of(key, map));
            }
        }
    }

    private static final class Kept extends KeyedStateBootstrapFunction<String, Tuple2<String, Map<String, Long>>> {
        private transient ValueState<Map<String, Long>> state;

        @Override
        public void open(OpenContext context) {
            state = getRuntimeContext().getState(new ValueStateDescriptor<>("mainState", MAP));
        }

        @Override
        public void processElement(Tuple2<String, Map<String, Long>> map, Context context) throws Exception {
            state.update(map.f1);
        }
    }

    private static final class Migrated extends KeyedStateBootstrapFunction<String, Tuple2<String, Map<String, Long>>> {
        private transient MapState<String, Long> state;

        @Override
        public void open(OpenContext context) {
            state =
                    getRuntimeContext()
                            .getMapState(new MapStateDescriptor<>("newMainState", Types.STRING, Types.LONG));
        }

        @Override
        public void processElement(Tuple2<String, Map<String, Long>> map, Context context) throws Exception {
            state.putAll(map.f1);
        }
    }
}
