package stateferry.benchmark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
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
 * <p>Arguments: backend (rocksdb or hashmap), kind of state (value, list or map), bytes of all state, milliseconds to
 * measure, and sizes such as 16x100 (entries of a map, bytes of a value), each of which is a job of its own. Prints for
 * each size the median of the nanoseconds of a change.
 */
public final class AccessState {
    private static final int MOST_CHANGES = 400_000;
    private static final TypeInformation<byte[]> BYTES = PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO;

    private AccessState() {}

    public static void main(String[] args) throws Exception {
        for (int size = 4; size < args.length; size++) {
            String[] parts = args[size].split("x");
            Changes changes = Changes.of(args[1], Integer.parseInt(parts[0]), Integer.parseInt(parts[1]));
            long bytesOfKey = changes.entries * (changes.bytes + 12L);
            changes.keys = (int) Math.max(Long.parseLong(args[2]) / bytesOfKey, 1);
            changes.milliseconds = Long.parseLong(args[3]);
            measure(args[0], changes);
        }
    }

    private static void measure(String backend, Changes changes) throws Exception {
        int keys = changes.keys;
        Configuration configuration = new Configuration();
        configuration.setString("state.backend.type", backend);
        configuration.setString("taskmanager.memory.managed.size", "128m");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        env.setParallelism(1);
        env.fromSequence(0, keys + (long) MOST_CHANGES)
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
            times = new long[MOST_CHANGES + 1];
            open();
        }

        abstract void open() throws Exception;

        abstract void fill(Map<String, byte[]> map) throws Exception;

        abstract void put(String entry, byte[] value) throws Exception;

        @Override
        public void processElement(Long number, Context context, Collector<String> out) throws Exception {
            if (number < keys) {
                Map<String, byte[]> map = new HashMap<>();
                for (int entry = 0; entry < entries; entry++) {
                    map.put(name(entry), value());
                }
                fill(map);
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
            long[] measured = Arrays.copyOfRange(times, count / 3, count);
            Arrays.sort(measured);
            System.out.println("median " + entries + "x" + bytes + " " + measured[measured.length / 2]);
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
        void fill(Map<String, byte[]> map) throws Exception {
            state.update(map);
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
        void fill(Map<String, byte[]> map) throws Exception {
            List<Tuple2<String, byte[]>> list = new ArrayList<>();
            map.forEach((entry, value) -> list.add(Tuple2.of(entry, value)));
            state.update(list);
        }

        @Override
        void put(String entry, byte[] value) throws Exception {
            List<Tuple2<String, byte[]>> list = new ArrayList<>();
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
        void fill(Map<String, byte[]> map) throws Exception {
            state.putAll(map);
        }

        @Override
        void put(String entry, byte[] value) throws Exception {
            // As a job does that derives the new value from the old one.
            state.get(entry);
            state.put(entry, value);
        }
    }
}
