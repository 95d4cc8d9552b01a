package stateferry.flink;

import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.ttl.TtlValue;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import stateferry.flink.types.Json;
import stateferry.flink.types.Kind;
import stateferry.flink.types.Kinds;

/** Entries in the shape of a dump, each naming its operator and state as well. */
final class Lines {
    private final Spec.Operator operator;
    private final Consumer<ObjectNode> out;

    Lines(Spec.Operator operator, Consumer<ObjectNode> out) {
        this.operator = operator;
        this.out = out;
    }

    /** All that a state holds for one key and namespace. */
    void content(Spec.State state, Object key, Object namespace, int group, Object content) {
        ObjectNode start = start(state.name, key, state.namespace, namespace, group);
        Kind<?> kind = state.content();
        if (state.kind.equals("MAP")) {
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) content).entrySet()) {
                ObjectNode line = start.deepCopy();
                line.set("user_key", Kinds.keyOf(kind).show(entry.getKey()));
                finish(line, Kinds.valueOf(kind), entry.getValue());
            }
        } else if (state.kind.equals("LIST")) {
            start.set("value", kind.show(content));
            if (state.stamped()) {
                ArrayNode stamps = start.putArray("timestamp");
                ((List<?>) content).forEach(e -> stamps.add(((TtlValue<?>) e).getLastAccessTimestamp()));
            }
            out.accept(start);
        } else {
            finish(start, kind, content);
        }
    }

    void timer(Spec.Timers timers, String kind, Object key, Object namespace, long timestamp, int group) {
        String name = "_timer_state/" + kind + "_" + timers.service;
        ObjectNode line = start(name, key, timers.namespace, namespace, group);
        out.accept(line.put("timestamp", timestamp));
    }

    void element(Spec.OperatorState state, Object element) {
        ObjectNode line = line(state.name);
        line.set("value", Kinds.parse(state.type).show(element));
        out.accept(line);
    }

    void broadcast(Spec.OperatorState state, Object key, Object value) {
        Kind<?> map = Kinds.parse(state.type);
        ObjectNode line = line(state.name);
        line.set("user_key", Kinds.keyOf(map).show(key));
        line.set("value", Kinds.valueOf(map).show(value));
        out.accept(line);
    }

    void rawKeyed(int group, String text) {
        out.accept(line("raw-keyed").put("key_group", group).put("value", text));
    }

    void raw(String text) {
        out.accept(line("raw-operator").put("value", text));
    }

    /** Something that is not as it should be in a running job. */
    void anomaly(String state, String problem, Object key) {
        ObjectNode line = line(state).put("problem", problem);
        line.set("key", Kinds.parse(operator.key).show(key));
        out.accept(line);
    }

    private ObjectNode start(String state, Object key, String namespaceType, Object namespace, int group) {
        ObjectNode line = line(state);
        line.set("key", Kinds.parse(operator.key).show(key));
        if (!(namespace instanceof VoidNamespace)) {
            line.set("namespace", Kinds.parse(namespaceType).show(namespace));
        }
        return line.put("key_group", group);
    }

    private ObjectNode line(String state) {
        return Json.NODES.objectNode().put("operator", operator.uid).put("state", state);
    }

    private void finish(ObjectNode line, Kind<?> kind, Object value) {
        JsonNode shown = kind.show(value);
        line.set("value", shown);
        if (value instanceof TtlValue<?> stamped) {
            line.put("timestamp", stamped.getLastAccessTimestamp());
        }
        out.accept(line);
    }
}
