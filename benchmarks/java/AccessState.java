package stateferry.benchmark;

import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * Measures how long a job takes to change one entry of a map, on a real state backend.
 *
 * <p>Arguments: backend (rocksdb or hashmap), kind of state (value, list or map), entries of a map, bytes of a value,
 * bytes of all state, milliseconds to measure. Prints the median of the nanoseconds of a change, and their number.
 */
public final class AccessState {
    private static final TypeInformation<byte[]> BYTES = PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO;

    private AccessState() {}

    public static void main(String[] args) throws Exception {
        Changes changes = Changes.of(args[1], Integer.parseInt(args[2]), Integer.parseInt(args[3]));
        int keys = (int) Math.max(Long.parseLong(args[4]) / Math.max(changes.entries * (changes.bytes + 12L), 1), 1);
        changes.keys = keys;
        changes.milliseconds = Long.parseLong(args[5]);
        Configuration configuration = new Configuration();
        configuration.setString("state.backend.type", args[0]);
        configuration.setString("taskmanager.memory.managed.size", "128m");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        env.setParallelism(1);
        env.fromSequence(0, keys + 2_000_000L)
                .keyBy(number -> number % keys)
                .process(changes)
                .sinkTo(new DiscardingSink<>());
        env.execute();
    }

    /** Fills the state of each key with its first record, and changes one entry with each record that follows. */
    private abstract static class Changes extends KeyedProcessFunction<Long, Long, String> {
        int entries;
        int bytes;
        int keys;
        long milliseconds;
        private transient Random random;
        private transient long[] times;
        private transient int count;
        private transient long until;

        static Changes of(String kind, int entries, int bytes) {
            Changes changes =
                    switch (kind) {
                        case "value" -> new OfValue();
                        case "list" -> new OfList();
                        case "map" -> new OfMap();
                        default -> throw new IllegalArgumentException(kind);
                    };
            changes.entries = entries;
            changes.bytes = bytes;
            return changes;
        }

        @Override
        public void open(OpenContext context) throws Exception {
            random = new Random(1);
            times = new long[2_000_001];
            open();
        }

        abstract void open() throws Exception;

        abstract void put(String entry, byte[] value) throws Exception;

        @Override
        public void processElement(Long number, Context context, Collector<String> out) throws Exception {
            if (number < keys) {
                for (int entry = 0; entry < entries; entry++) {
                    put(name(entry), value());
                }
                return;
            }
            long now = System.nanoTime();
            until = until == 0 ? now + milliseconds * 1_000_000 : until;
            if (now > until) {
                return;
            }
            String entry = name(random.nextInt(entries));
            byte[] value = value();
            long began = System.nanoTime();
            put(entry, value);
            times[count++] = System.nanoTime() - began;
        }

        private static String name(int entry) {
            return String.format("entry-%06d", entry);
        }

        private byte[] value() {
            byte[] value = new byte[bytes];
            random.nextBytes(value);
            return value;
        }

        @Override
        public void close() {
            // The first third warms up the JVM and the caches.
            long[] measured = java.util.Arrays.copyOfRange(times, count / 3, count);
            java.util.Arrays.sort(measured);
            System.out.println("median " + measured[measured.length / 2] + " of " + measured.length);
        }
    }

    private static final class OfValue extends Changes {
        private transient ValueState<Map<String, byte[]>> state;

        @Override
        void open() {
            state =
                    getRuntimeContext()
                            .getState(
                                    new ValueStateDescriptor<>(
                                            "state", Types.MAP(Types.STRING, BYTES)));
        }

        @Override
        void put(String entry, byte[] value) throws Exception {
            Map<String, byte[]> map = state.value();
            map = map == null ? new HashMap<>() : map;
            map.put(entry, value);
            state.update(map);
        }
    }

    private static final class OfList extends Changes {
        private transient ListState<Tuple2<String, byte[]>> state;

        @Override
        void open() {
            state =
                    getRuntimeContext()
                            .getListState(
                                    new ListStateDescriptor<>(
                                            "state", Types.TUPLE(Types.STRING, BYTES)));
        }

        @Override
        void put(String entry, byte[] value) throws Exception {
            java.util.List<Tuple2<String, byte[]>> list = new java.util.ArrayList<>();
            boolean isThere = false;
            for (Tuple2<String, byte[]> one : state.get()) {
                boolean isThis = one.f0.equals(entry);
                isThere |= isThis;
                list.add(isThis ? Tuple2.of(entry, value) : one);
            }
            if (isThere) {
                state.update(list);
            } else {
                state.add(Tuple2.of(entry, value));
            }
        }
    }

    private static final class OfMap extends Changes {
        private transient MapState<String, byte[]> state;

        @Override
        void open() {
            state =
                    getRuntimeContext()
                            .getMapState(
                                    new MapStateDescriptor<>(
                                            "state", Types.STRING, BYTES));
        }

        @Override
        void put(String entry, byte[] value) throws Exception {
            // As a job does that derives the new value from the old one.
            state.get(entry);
            state.put(entry, value);
        }
    }
}
