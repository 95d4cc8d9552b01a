package stateferry.flink;

import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.serialization.SerializerConfig;
import org.apache.flink.api.common.state.BroadcastState;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.OperatorStateStore;
import stateferry.flink.types.Kind;
import stateferry.flink.types.Kinds;

/** The states of an operator that belong to no key. */
@SuppressWarnings({"unchecked", "rawtypes"})
final class OperatorStates {
    private final Spec.Operator operator;
    private final Contents contents;
    private final SerializerConfig config;

    OperatorStates(Spec.Operator operator, Contents contents, SerializerConfig config) {
        this.operator = operator;
        this.contents = contents;
        this.config = config;
    }

    /** Every subtask takes its share of the elements of a list, and all of a broadcast state. */
    void write(OperatorStateStore store, int subtask, int subtasks, Lines lines) throws Exception {
        for (Spec.OperatorState state : operator.operatorStates) {
            List<Object> elements = contents.elements(operator, state);
            if (state.mode.equals("BROADCAST")) {
                BroadcastState target = broadcast(store, state);
                for (Object map : elements) {
                    target.putAll((Map<?, ?>) map);
                }
                if (subtask == subtasks - 1) {
                    showBroadcast(state, target, lines);
                }
                continue;
            }
            ListState target = list(store, state);
            for (int i = subtask; i < elements.size(); i += subtasks) {
                target.add(elements.get(i));
                lines.element(state, elements.get(i));
            }
        }
    }

    void read(OperatorStateStore store, Lines lines) throws Exception {
        for (Spec.OperatorState state : operator.operatorStates) {
            if (state.mode.equals("BROADCAST")) {
                showBroadcast(state, broadcast(store, state), lines);
                continue;
            }
            for (Object element : (Iterable<?>) list(store, state).get()) {
                lines.element(state, element);
            }
        }
    }

    private static void showBroadcast(Spec.OperatorState state, BroadcastState<?, ?> source, Lines lines)
            throws Exception {
        for (Map.Entry<?, ?> entry : source.immutableEntries()) {
            lines.broadcast(state, entry.getKey(), entry.getValue());
        }
    }

    private BroadcastState broadcast(OperatorStateStore store, Spec.OperatorState state) throws Exception {
        Kind<?> map = Kinds.parse(state.type);
        return store.getBroadcastState(new MapStateDescriptor(
                state.name, Kinds.keyOf(map).serializer(config), Kinds.valueOf(map).serializer(config)));
    }

    private ListState list(OperatorStateStore store, Spec.OperatorState state) throws Exception {
        ListStateDescriptor descriptor =
                new ListStateDescriptor(state.name, Kinds.parse(state.type).serializer(config));
        return state.mode.equals("UNION") ? store.getUnionListState(descriptor) : store.getListState(descriptor);
    }
}
