package stateferry.flink;

import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.runtime.state.ttl.TtlUtils;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import stateferry.flink.types.Json;

/** Has Flink's TTL decide what is expired, and what reading does to a value. */
final class TtlJudge {
    private TtlJudge() {}

    /** For each triple of timestamp, TTL and now one byte: whether the value is expired. */
    static void expired(Path triples, Path out) throws IOException {
        ByteBuffer given = ByteBuffer.wrap(Files.readAllBytes(triples));
        try (DataOutputStream target = new DataOutputStream(Files.newOutputStream(out))) {
            while (given.hasRemaining()) {
                target.writeBoolean(TtlUtils.expired(given.getLong(), given.getLong(), given.getLong()));
            }
        }
    }

    /**
     * A case writes a value at one time and reads it at others: {@code {"update": ..., "visibility": ..., "ttl": ms,
     * "written": ms, "reads": [ms, ...]}}. Answers with whether each read saw the value.
     */
    static ArrayNode reads(JsonNode cases) throws Exception {
        ArrayNode out = Json.NODES.arrayNode();
        for (JsonNode one : cases) {
            long[] now = {one.get("written").asLong()};
            AbstractKeyedStateBackend<Long> backend = HeapBackend.make(() -> now[0]);
            try {
                ValueStateDescriptor<Long> descriptor = new ValueStateDescriptor<>("state", LongSerializer.INSTANCE);
                descriptor.enableTimeToLive(StateTtlConfig.newBuilder(Duration.ofMillis(one.get("ttl").asLong()))
                        .setUpdateType(StateTtlConfig.UpdateType.valueOf(one.get("update").asText()))
                        .setStateVisibility(StateTtlConfig.StateVisibility.valueOf(one.get("visibility").asText()))
                        .build());
                backend.setCurrentKey(1L);
                ValueState<Long> state = backend.getPartitionedState(
                        VoidNamespace.INSTANCE, VoidNamespaceSerializer.INSTANCE, descriptor);
                state.update(42L);
                ArrayNode seen = out.addArray();
                for (JsonNode read : one.get("reads")) {
                    now[0] = read.asLong();
                    seen.add(state.value() != null);
                }
            } finally {
                backend.dispose();
            }
        }
        return out;
    }
}
