package stateferry.flink;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.ReduceFunction;
import org.apache.flink.api.common.serialization.SerializerConfig;
import org.apache.flink.api.common.state.AggregatingStateDescriptor;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.runtime.state.internal.InternalAppendingState;
import stateferry.flink.types.Kind;
import stateferry.flink.types.Kinds;

/** Reads and writes all that a state holds for the current key and namespace, whatever kind of state it is. */
@SuppressWarnings({"unchecked", "rawtypes"})
final class StateAccess {
    private StateAccess() {}

    static StateDescriptor<?, ?> descriptor(Spec.State state, SerializerConfig config) {
        StateDescriptor<?, ?> descriptor = plainDescriptor(state, config);
        if (state.configured()) {
            descriptor.enableTimeToLive(
                    StateTtlConfig.newBuilder(Duration.ofMillis(state.ttlMillis))
                            .setUpdateType(StateTtlConfig.UpdateType.valueOf(state.update))
                            .build());
        }
        return descriptor;
    }

    private static StateDescriptor<?, ?> plainDescriptor(Spec.State state, SerializerConfig config) {
        if (state.java != null) {
            return Declarations.descriptor(state, config);
        }
        Kind<?> content = state.content();
        return switch (state.kind) {
            case "VALUE" -> new ValueStateDescriptor(state.name, content.serializer(config));
            case "LIST" -> new ListStateDescriptor(state.name, Kinds.elementOf(content).serializer(config));
            case "MAP" -> new MapStateDescriptor(
                    state.name,
                    Kinds.keyOf(content).serializer(config),
                    Kinds.valueOf(content).serializer(config));
            case "REDUCING" -> new ReducingStateDescriptor(
                    state.name, new KeepLatest(), content.serializer(config));
            case "AGGREGATING" -> new AggregatingStateDescriptor(
                    state.name, new AccumulatorAsIs(), content.serializer(config));
            default -> throw new IllegalArgumentException("expected a kind of keyed state, found " + state.kind);
        };
    }

    static void write(Spec.State spec, State state, Object content) throws Exception {
        switch (spec.kind) {
            case "VALUE" -> ((ValueState) state).update(content);
            case "LIST" -> ((ListState) state).update((List) content);
            case "MAP" -> {
                for (Map.Entry<?, ?> entry : ((Map<?, ?>) content).entrySet()) {
                    ((MapState) state).put(entry.getKey(), entry.getValue());
                }
            }
            default -> ((InternalAppendingState) state).updateInternal(content);
        }
    }

    /** Writes something that won't stay: of maps half of what is there is removed, lists get longer. */
    static void draft(Spec.State spec, State state, Object content) throws Exception {
        switch (spec.kind) {
            case "LIST" -> ((ListState) state).addAll((List) content);
            case "MAP" -> {
                List<Object> there = new ArrayList<>();
                ((MapState) state).keys().forEach(there::add);
                for (Object key : there.subList(0, there.size() / 2)) {
                    ((MapState) state).remove(key);
                }
                write(spec, state, content);
            }
            default -> write(spec, state, content);
        }
    }

    /** What there is of the content before {@link #complete}. */
    static Object begun(Spec.State spec, Object content) {
        return spec.kind.equals("LIST") ? ((List<?>) content).subList(0, ((List<?>) content).size() / 2) : content;
    }

    static void complete(Spec.State spec, State state, Object content) throws Exception {
        if (spec.kind.equals("LIST")) {
            List<?> list = (List<?>) content;
            for (Object element : list.subList(list.size() / 2, list.size())) {
                ((ListState) state).add(element);
            }
        }
    }

    /** What {@link #write} would have to be given; null if there is nothing. */
    static Object read(Spec.State spec, State state) throws Exception {
        switch (spec.kind) {
            case "VALUE":
                return ((ValueState) state).value();
            case "LIST":
                Iterable<?> elements = ((ListState<?>) state).get();
                if (elements == null) {
                    return null;
                }
                List<Object> list = new ArrayList<>();
                elements.forEach(list::add);
                return list.isEmpty() ? null : list;
            case "MAP":
                Iterable<Map.Entry<?, ?>> entries = ((MapState) state).entries();
                if (entries == null) {
                    return null;
                }
                Map<Object, Object> map = new LinkedHashMap<>();
                entries.forEach(e -> map.put(e.getKey(), e.getValue()));
                return map.isEmpty() ? null : map;
            default:
                return ((InternalAppendingState) state).getInternal();
        }
    }

    /** Contents are written as they are, so nothing is ever reduced but by window operators. */
    private static final class KeepLatest implements ReduceFunction<Object> {
        @Override
        public Object reduce(Object earlier, Object later) {
            return later;
        }
    }

    private static final class AccumulatorAsIs implements AggregateFunction<Object, Object, Object> {
        @Override
        public Object createAccumulator() {
            return null;
        }

        @Override
        public Object add(Object value, Object accumulator) {
            return value;
        }

        @Override
        public Object getResult(Object accumulator) {
            return accumulator;
        }

        @Override
        public Object merge(Object one, Object other) {
            return other;
        }
    }
}
