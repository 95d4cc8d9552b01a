package stateferry.flink;

import java.io.Serializable;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import stateferry.flink.types.Json;
import stateferry.job.MigratingMapState;

/** A job that does what a script says with the state of some keys, by the class that people copy into their jobs. */
final class JobSide {
    static final String UID = "main";

    /** What the job does, in order. */
    public static final class Script implements Serializable {
        /**
         * {@code old}: the old map alone; {@code wrapped}: all three states; {@code rows}: the new map alone;
         * {@code kryo}: the {@code states} of {@link KryoCalls}.
         */
        public String shape;
        public String backend;
        public Long ttlMillis;
        /** Whether the old map is by Kryo, by which it may be null. */
        public boolean kryo;
        public int maxParallelism = 128;
        public List<Call> calls = List.of();
        public List<String> states = List.of();
    }

    /** One call for a key. */
    public static final class Call implements Serializable {
        public String key;
        public String name;
        public String userKey;
        public Long value;
        public Map<String, Long> map;
        public String state;
        public String row;
        public Double number;
        public Map<String, Double> numbers;
    }

    private JobSide() {}

    static JobGraph graph(String board, Script script, Configuration configuration) {
        StreamExecutionEnvironment environment = Topology.environment(configuration);
        environment.setParallelism(1);
        environment.setMaxParallelism(script.maxParallelism);
        environment
                .addSource(new Calls(board, script), "calls", Types.INT)
                .uid("calls")
                .keyBy(new KeyOf(script), Types.STRING)
                .process(script.shape.equals("kryo") ? new KryoCalls(board, script) : new Function(board, script))
                .returns(Types.VOID)
                .uid(UID)
                .name(UID);
        return environment.getStreamGraph().getJobGraph();
    }

    private static final class KeyOf
            implements org.apache.flink.api.java.functions.KeySelector<Integer, String> {
        private final Script script;

        KeyOf(Script script) {
            this.script = script;
        }

        @Override
        public String getKey(Integer number) {
            return script.calls.get(number).key;
        }
    }

    private static final class Calls extends LegacySource<Integer> {
        private final String board;
        private final Script script;
        private volatile boolean running = true;

        Calls(String board, Script script) {
            this.board = board;
            this.script = script;
        }

        @Override
        public void run(SourceContext<Integer> context) throws Exception {
            for (int number = 0; number < script.calls.size(); number++) {
                synchronized (context.getCheckpointLock()) {
                    context.collect(number);
                }
            }
            Board.of(board).report("calls", 0);
            while (running) {
                Thread.sleep(10);
            }
        }

        @Override
        public void cancel() {
            running = false;
        }
    }

    private static final class Function extends KeyedProcessFunction<String, Integer, Void> {
        private final String board;
        private final Script script;
        private transient ValueState<Map<String, Long>> old;
        private transient MapState<String, Long> rows;
        private transient ValueState<Boolean> isMigrated;
        private transient MigratingMapState<String, Long> wrapped;

        Function(String board, Script script) {
            this.board = board;
            this.script = script;
        }

        @Override
        public void open(OpenContext context) {
            if (!script.shape.equals("rows")) {
                old = getRuntimeContext().getState(aging(new ValueStateDescriptor<>("mainState", typeOfOld())));
            }
            if (!script.shape.equals("old")) {
                rows = getRuntimeContext().getMapState(aging(
                        new MapStateDescriptor<>("newMainState", Types.STRING, Types.LONG)));
            }
            if (script.shape.equals("wrapped")) {
                isMigrated = getRuntimeContext().getState(aging(
                        new ValueStateDescriptor<>("isMigratedState", Types.BOOLEAN)));
                wrapped = new MigratingMapState<>(old, rows, isMigrated);
            }
            if (script.calls.isEmpty()) {
                Board.of(board).report(UID, 0);
            }
        }

        @SuppressWarnings("unchecked")
        private TypeInformation<Map<String, Long>> typeOfOld() {
            return script.kryo
                    ? (TypeInformation<Map<String, Long>>) (TypeInformation<?>) Types.GENERIC(HashMap.class)
                    : Types.MAP(Types.STRING, Types.LONG);
        }

        private <T extends StateDescriptor<?, ?>> T aging(T descriptor) {
            if (script.ttlMillis != null) {
                descriptor.enableTimeToLive(StateTtlConfig.newBuilder(Duration.ofMillis(script.ttlMillis)).build());
            }
            return descriptor;
        }

        @Override
        public void processElement(Integer number, Context context, Collector<Void> out) throws Exception {
            Call call = script.calls.get(number);
            ObjectNode line = Json.NODES.objectNode();
            line.put("call", number);
            switch (script.shape) {
                case "old" -> ofOld(call, line);
                case "rows" -> ofMap(call, rows, line);
                default -> ofWrapped(call, line);
            }
            Board.of(board).write(line);
            if (number == script.calls.size() - 1) {
                Board.of(board).report(UID, 0);
            }
        }

        private void ofOld(Call call, ObjectNode line) throws Exception {
            switch (call.name) {
                case "update" -> old.update(new HashMap<>(call.map));
                case "value" -> show(old.value(), line);
                default -> throw new IllegalArgumentException(call.name);
            }
        }

        private void ofWrapped(Call call, ObjectNode line) throws Exception {
            switch (call.name) {
                case "value" -> show(wrapped.value(), line);
                case "update" -> wrapped.update(call.map);
                case "there" -> {
                    // Without moving anything.
                    line.put("blob", old.value() != null);
                    line.put("flag", Boolean.TRUE.equals(isMigrated.value()));
                    ofMap(call, rows, line);
                }
                case "wait" -> Thread.sleep(call.value);
                default -> ofMap(call, wrapped, line);
            }
        }

        private void ofMap(Call call, MapState<String, Long> map, ObjectNode line) throws Exception {
            switch (call.name) {
                case "get" -> line.put("found", map.get(call.userKey));
                case "contains" -> line.put("found", map.contains(call.userKey));
                case "put" -> map.put(call.userKey, call.value);
                case "putAll" -> map.putAll(call.map);
                case "remove" -> map.remove(call.userKey);
                case "isEmpty" -> line.put("found", map.isEmpty());
                case "clear" -> map.clear();
                case "count" -> {
                    int count = 0;
                    for (String ignored : map.keys()) {
                        count++;
                    }
                    for (Long ignored : map.values()) {
                        count++;
                    }
                    line.put("found", count);
                }
                case "entries", "there" -> {
                    Map<String, Long> found = new HashMap<>();
                    for (Map.Entry<String, Long> entry : map.entries()) {
                        found.put(entry.getKey(), entry.getValue());
                    }
                    show(found, line);
                }
                case "iterator" -> {
                    Map<String, Long> found = new HashMap<>();
                    map.iterator().forEachRemaining(entry -> found.put(entry.getKey(), entry.getValue()));
                    show(found, line);
                }
                default -> throw new IllegalArgumentException(call.name);
            }
        }

        private static void show(Map<String, Long> map, ObjectNode line) {
            if (map == null) {
                line.putNull("map");
                return;
            }
            ObjectNode shown = line.putObject("map");
            new TreeMap<>(map).forEach(shown::put);
        }
    }
}
