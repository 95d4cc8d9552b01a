import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.CloseableIterator;

/**
 * Keys a stream by substitutes, and prints on which subtask each record arrived: first one record for each subtask, then
 * one for each of the job's keys, which the arguments are.
 */
public final class SubstituteJob {
    public static void main(String[] keys) throws Exception {
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        env.setParallelism(OfInteger.PARALLELISM);
        env.setMaxParallelism(OfInteger.MAX_PARALLELISM);
        List<Tuple2<String, Integer>> integers = new ArrayList<>();
        List<Tuple2<String, Long>> longs = new ArrayList<>();
        List<Tuple2<String, String>> strings = new ArrayList<>();
        for (int subtask = 0; subtask < OfInteger.PARALLELISM; subtask++) {
            integers.add(Tuple2.of("subtask " + subtask, OfInteger.partitionToKey(subtask)));
            longs.add(Tuple2.of("subtask " + subtask, OfLong.partitionToKey(subtask)));
            strings.add(Tuple2.of("subtask " + subtask, OfString.partitionToKey(subtask)));
        }
        for (int number = 0; number < keys.length; number++) {
            integers.add(Tuple2.of("key " + number, OfInteger.substitute(keys[number])));
            longs.add(Tuple2.of("key " + number, OfLong.substitute(keys[number])));
            strings.add(Tuple2.of("key " + number, OfString.substitute(keys[number])));
        }
        DataStream<String> all = arrivals(env, "Integer", integers, Types.INT, OfInteger::keyToPartition)
                .union(arrivals(env, "Long", longs, Types.LONG, OfLong::keyToPartition))
                .union(arrivals(env, "String", strings, Types.STRING, OfString::keyToPartition));
        try (CloseableIterator<String> lines = all.executeAndCollect()) {
            lines.forEachRemaining(System.out::println);
        }
    }

    private interface Partition<K> extends java.io.Serializable {
        int of(K key);
    }

    private static <K> DataStream<String> arrivals(
            StreamExecutionEnvironment env,
            String name,
            List<Tuple2<String, K>> records,
            TypeInformation<K> type,
            Partition<K> partition) {
        KeySelector<Tuple2<String, K>, K> substitute = record -> record.f1;
        return env.fromCollection(records, Types.TUPLE(Types.STRING, type))
                .keyBy(substitute, type)
                .map(new RichMapFunction<Tuple2<String, K>, String>() {
                    @Override
                    public String map(Tuple2<String, K> record) {
                        int subtask = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
                        return String.join("\t", name, record.f0, "" + subtask, "" + partition.of(record.f1));
                    }
                }).returns(Types.STRING);
    }
}
