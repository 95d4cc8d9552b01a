package stateferry.flink;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.flink.api.common.serialization.SerializerConfig;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import stateferry.flink.types.Kind;
import stateferry.flink.types.Kinds;

/** Serialized values of a type, each with what it means, and the snapshot that Flink writes of the serializer. */
final class SerializerSamples {
    private SerializerSamples() {}

    /** Edges first, then random values. */
    static void of(JsonNode command, ObjectNode answer) throws IOException {
        Kind<?> kind = Kinds.parse(command.get("type").asText());
        List<String> registered = new ArrayList<>();
        command.get("registered").forEach(name -> registered.add(name.asText()));
        Configuration configuration = new Configuration();
        Topology.register(registered, configuration);
        SerializerConfig config = Topology.environment(configuration).getConfig().getSerializerConfig();
        Random random = new Random(command.get("seed").asLong());
        describe(kind, config, random, command.get("count").asInt(), answer);
    }

    private static <T> void describe(
            Kind<T> kind, SerializerConfig config, Random random, int count, ObjectNode answer) throws IOException {
        TypeSerializer<T> serializer = kind.serializer(config);
        DataOutputSerializer buffer = new DataOutputSerializer(256);
        List<T> values = new ArrayList<>(kind.edges());
        for (int i = 0; i < count; i++) {
            values.add(kind.draw(random));
        }
        ArrayNode samples = answer.putArray("samples");
        for (T value : values) {
            buffer.clear();
            serializer.serialize(value, buffer);
            ObjectNode sample = samples.addObject().put("bytes", buffer.getCopyOfBuffer());
            sample.set("value", kind.show(value));
        }
        buffer.clear();
        // After the samples: a POJO serializer knows the subclasses that it has met.
        TypeSerializerSnapshot.writeVersionedSnapshot(buffer, serializer.snapshotConfiguration());
        answer.put("snapshot", buffer.getCopyOfBuffer());
        answer.put("serializer", serializer.getClass().getName());
        answer.put("length", serializer.getLength());
    }
}
