package stateferry.flink;

import com.google.gson.internal.LinkedTreeMap;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import stateferry.flink.pojo.ByText;
import stateferry.flink.pojo.Lru;
import stateferry.flink.pojo.Stats;
import stateferry.flink.types.Json;

/** Does the calls of a script with states that Flink gives to Kryo, as a job does that reads a value and writes it. */
final class KryoCalls extends KeyedProcessFunction<String, Integer, Void> {
    private final String board;
    private final JobSide.Script script;
    private final Map<String, ValueState<Object>> values = new HashMap<>();
    private MapState<String, Object> rows;
    private MapState<String, Object> maps;
    private ListState<Object> list;

    KryoCalls(String board, JobSide.Script script) {
        this.board = board;
        this.script = script;
    }

    /** Each type as a job declares it: by a hint or by a class. */
    private static TypeInformation<?> type(String state) {
        return switch (state) {
            case "longs" -> TypeInformation.of(new TypeHint<HashMap<String, Long>>() {});
            case "doubles", "mixed" -> TypeInformation.of(Map.class);
            case "concurrent" -> TypeInformation.of(new TypeHint<ConcurrentHashMap<String, Long>>() {});
            case "sorted", "by text" -> TypeInformation.of(new TypeHint<TreeMap<String, Long>>() {});
            case "linked" -> TypeInformation.of(new TypeHint<LinkedHashMap<String, Double>>() {});
            case "lru" -> TypeInformation.of(new TypeHint<Lru<String, Double>>() {});
            case "gson" -> TypeInformation.of(new TypeHint<LinkedTreeMap<String, Double>>() {});
            case "stats" -> TypeInformation.of(Stats.class);
            case "lists" -> TypeInformation.of(new TypeHint<HashMap<String, List<Long>>>() {});
            default -> TypeInformation.of(Object.class);
        };
    }

    @Override
    @SuppressWarnings("unchecked")
    public void open(OpenContext context) {
        for (String state : script.states) {
            TypeInformation<Object> type = (TypeInformation<Object>) type(state);
            switch (state) {
                case "rows" -> rows = getRuntimeContext().getMapState(
                        aging(new MapStateDescriptor<>(state, Types.STRING, type)));
                case "maps" -> maps = getRuntimeContext().getMapState(aging(new MapStateDescriptor<>(
                        state, Types.STRING, (TypeInformation<Object>) type("longs"))));
                case "list" -> list = getRuntimeContext().getListState(aging(new ListStateDescriptor<>(state, type)));
                default -> values.put(
                        state, getRuntimeContext().getState(aging(new ValueStateDescriptor<>(state, type))));
            }
        }
        if (script.calls.isEmpty()) {
            Board.of(board).report(JobSide.UID, 0);
        }
    }

    private <T extends StateDescriptor<?, ?>> T aging(T descriptor) {
        if (script.ttlMillis != null) {
            descriptor.enableTimeToLive(StateTtlConfig.newBuilder(Duration.ofMillis(script.ttlMillis)).build());
        }
        return descriptor;
    }

    @Override
    public void processElement(Integer number, Context context, Collector<Void> out) throws Exception {
        JobSide.Call call = script.calls.get(number);
        ObjectNode line = Json.NODES.objectNode();
        line.put("call", number);
        switch (call.state) {
            case "rows" -> ofRow(call, line);
            case "maps" -> ofMapInRow(call, line);
            case "list" -> ofList(call, line);
            default -> ofValue(call, values.get(call.state), line);
        }
        Board.of(board).write(line);
        if (number == script.calls.size() - 1) {
            Board.of(board).report(JobSide.UID, 0);
        }
    }

    private void ofValue(JobSide.Call call, ValueState<Object> state, ObjectNode line) throws Exception {
        switch (call.name) {
            case "value" -> show(state.value(), line);
            case "clear" -> state.clear();
            case "wait" -> Thread.sleep(call.value);
            default -> {
                Object made = changed(call, state.value());
                if (made == null) {
                    state.clear();
                } else {
                    state.update(made);
                }
            }
        }
    }

    private void ofList(JobSide.Call call, ObjectNode line) throws Exception {
        if (call.name.equals("add")) {
            list.add(call.number);
            return;
        }
        List<Object> found = new ArrayList<>();
        list.get().forEach(found::add);
        show(found, line);
    }

    private void ofRow(JobSide.Call call, ObjectNode line) throws Exception {
        switch (call.name) {
            case "value" -> show(rows.get(call.userKey), line);
            case "remove" -> rows.remove(call.userKey);
            case "touch" -> rows.put(call.userKey, rows.get(call.userKey));
            default -> rows.put(call.userKey, call.number);
        }
    }

    private void ofMapInRow(JobSide.Call call, ObjectNode line) throws Exception {
        switch (call.name) {
            case "value" -> show(maps.get(call.row), line);
            case "clear" -> maps.remove(call.row);
            default -> maps.put(call.row, changed(call, maps.get(call.row)));
        }
    }

    /** What a job makes of the value that it has read. */
    @SuppressWarnings("unchecked")
    private static Object changed(JobSide.Call call, Object read) {
        if (call.name.equals("touch")) {
            return read;
        }
        if (call.state.equals("number")) {
            return call.number;
        }
        Map<String, Object> map = (Map<String, Object>) read;
        if (call.name.equals("update") || map == null) {
            map = switch (call.state) {
                case "sorted" -> new TreeMap<>();
                case "by text" -> new TreeMap<>(new ByText());
                case "linked" -> new LinkedHashMap<>();
                case "lru" -> new Lru<>();
                case "gson" -> new LinkedTreeMap<>();
                case "stats" -> (Map) new Stats();
                case "concurrent" -> new ConcurrentHashMap<>();
                default -> new HashMap<>();
            };
        }
        switch (call.name) {
            case "update" -> {
                for (Map.Entry<String, Double> entry : call.numbers.entrySet()) {
                    map.put(key(call.state, entry.getKey()), number(call.state, entry.getValue()));
                }
            }
            case "put" -> map.put(call.userKey, number(call.state, call.number));
            case "remove" -> map.remove(call.userKey);
            default -> throw new IllegalArgumentException(call.name);
        }
        return map;
    }

    /** Null, if the comparator takes it. */
    private static String key(String state, String key) {
        return state.equals("by text") && key.equals("null") ? null : key;
    }

    private static Object number(String state, Double number) {
        return switch (state) {
            case "doubles", "linked", "lru", "gson", "stats" -> number;
            case "mixed" -> ofAnyClass(number);
            case "lists" -> new ArrayList<>(List.of(number.longValue(), number.longValue() + 1));
            default -> number.longValue();
        };
    }

    private static Object ofAnyClass(double number) {
        return switch ((int) number % 7) {
            case 0 -> null;
            case 1 -> (float) number;
            case 2 -> (short) number;
            case 3 -> (char) number;
            case 4 -> (int) number;
            case 5 -> number > 20;
            default -> "ü" + number;
        };
    }

    private static void show(Object value, ObjectNode line) {
        if (value instanceof Map<?, ?> map) {
            ObjectNode shown = line.putObject("map");
            Map<String, String> sorted = new TreeMap<>();
            map.forEach((key, one) -> sorted.put(String.valueOf(key), String.valueOf(one)));
            sorted.forEach(shown::put);
        } else {
            line.put("found", value == null ? null : value.toString());
        }
    }
}
