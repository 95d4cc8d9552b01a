package stateferry.flink;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.flink.runtime.checkpoint.RoundRobinOperatorStateRepartitioner;
import org.apache.flink.runtime.state.OperatorStateHandle;
import org.apache.flink.runtime.state.OperatorStateHandle.StateMetaInfo;
import org.apache.flink.runtime.state.OperatorStreamStateHandle;
import org.apache.flink.runtime.state.memory.ByteStreamStateHandle;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.util.CollectionUtil;
import stateferry.flink.types.Json;

/** Has Flink deal out operator state anew. */
final class OperatorStateJudge {
    private OperatorStateJudge() {}

    /**
     * A case: {@code {"subtasks": [[handle, ...], ...], "parallelism": n}}, where a handle is
     * {@code {"handle": name, "states": {state: {"mode": SPLIT_DISTRIBUTE|UNION|BROADCAST, "offsets": [...]}}}}.
     * The answer has the same shape as {@code subtasks}.
     */
    static ArrayNode redistribute(JsonNode cases) {
        ArrayNode out = Json.NODES.arrayNode();
        for (JsonNode one : cases) {
            List<List<OperatorStateHandle>> old = new ArrayList<>();
            for (JsonNode subtask : one.get("subtasks")) {
                List<OperatorStateHandle> handles = new ArrayList<>();
                subtask.forEach(handle -> handles.add(handle(handle)));
                old.add(handles);
            }
            ArrayNode subtasks = out.addArray();
            for (List<OperatorStateHandle> handles : RoundRobinOperatorStateRepartitioner.INSTANCE.repartitionState(
                    old, old.size(), one.get("parallelism").asInt())) {
                ArrayNode subtask = subtasks.addArray();
                handles.forEach(handle -> subtask.add(json(handle)));
            }
        }
        return out;
    }

    private static OperatorStateHandle handle(JsonNode json) {
        // The very map that Flink reads metadata into: its order has a say in where odd items go.
        Map<String, StateMetaInfo> states =
                CollectionUtil.newHashMapWithExpectedSize(json.get("states").size());
        Iterator<Map.Entry<String, JsonNode>> fields = json.get("states").fields();
        while (fields.hasNext()) {
            Map.Entry<String, JsonNode> field = fields.next();
            JsonNode given = field.getValue().get("offsets");
            long[] offsets = new long[given.size()];
            for (int i = 0; i < offsets.length; i++) {
                offsets[i] = given.get(i).asLong();
            }
            OperatorStateHandle.Mode mode = OperatorStateHandle.Mode.valueOf(field.getValue().get("mode").asText());
            states.put(field.getKey(), new StateMetaInfo(offsets, mode));
        }
        return new OperatorStreamStateHandle(
                states, new ByteStreamStateHandle(json.get("handle").asText(), new byte[0]));
    }

    private static ObjectNode json(OperatorStateHandle handle) {
        ByteStreamStateHandle named = (ByteStreamStateHandle) handle.getDelegateStateHandle();
        ObjectNode out = Json.NODES.objectNode().put("handle", named.getHandleName());
        ObjectNode states = out.putObject("states");
        handle.getStateNameToPartitionOffsets().forEach((name, info) -> {
            ObjectNode state = states.putObject(name).put("mode", info.getDistributionMode().name());
            ArrayNode offsets = state.putArray("offsets");
            for (long offset : info.getOffsets()) {
                offsets.add(offset);
            }
        });
        return out;
    }
}
