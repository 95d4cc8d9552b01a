package stateferry.flink;

import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Random;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import stateferry.flink.types.Kind;
import stateferry.flink.types.Kinds;

/** Says what Flink's own classes answer about keys, key groups and subtasks, in files of big-endian integers. */
final class KeyJudge {
    private KeyJudge() {}

    /**
     * Random keys: i32 length and bytes of the serializer's snapshot, i32 number of keys, i32 number of max
     * parallelisms and these; then for each key i32 length, serialized bytes, i32 hashCode, i32 key group for each
     * max parallelism.
     */
    static void keys(JsonNode command, Path out) throws IOException {
        Kind<?> kind = Kinds.parse(command.get("type").asText());
        int count = command.get("count").asInt();
        int[] maxParallelisms = integers(command.get("max_parallelisms"));
        keys(kind, new Random(command.get("seed").asLong()), count, maxParallelisms, out);
    }

    private static <T> void keys(Kind<T> kind, Random random, int count, int[] maxParallelisms, Path out)
            throws IOException {
        TypeSerializer<T> serializer = kind.serializer(new SerializerConfigImpl());
        DataOutputSerializer buffer = new DataOutputSerializer(256);
        TypeSerializerSnapshot.writeVersionedSnapshot(buffer, serializer.snapshotConfiguration());
        try (DataOutputStream target = open(out)) {
            write(buffer, target);
            target.writeInt(count);
            target.writeInt(maxParallelisms.length);
            for (int maxParallelism : maxParallelisms) {
                target.writeInt(maxParallelism);
            }
            for (int i = 0; i < count; i++) {
                T key = kind.draw(random);
                buffer.clear();
                serializer.serialize(key, buffer);
                write(buffer, target);
                target.writeInt(key.hashCode());
                for (int maxParallelism : maxParallelisms) {
                    target.writeInt(KeyGroupRangeAssignment.assignToKeyGroup(key, maxParallelism));
                }
            }
        }
    }

    /**
     * For each pair of parallelism and max parallelism: both, the first and last key group of every subtask, the
     * subtask of every key group.
     */
    static void ranges(JsonNode command, Path out) throws IOException {
        try (DataOutputStream target = open(out)) {
            for (JsonNode pair : command.get("pairs")) {
                int parallelism = pair.get(0).asInt();
                int maxParallelism = pair.get(1).asInt();
                target.writeInt(parallelism);
                target.writeInt(maxParallelism);
                for (int subtask = 0; subtask < parallelism; subtask++) {
                    KeyGroupRange range = KeyGroupRangeAssignment.computeKeyGroupRangeForOperatorIndex(
                            maxParallelism, parallelism, subtask);
                    target.writeInt(range.getStartKeyGroup());
                    target.writeInt(range.getEndKeyGroup());
                }
                for (int group = 0; group < maxParallelism; group++) {
                    target.writeInt(KeyGroupRangeAssignment.computeOperatorIndexForKeyGroup(
                            maxParallelism, parallelism, group));
                }
            }
        }
    }

    /** The default max parallelism of every parallelism from 1 to 32768. */
    static void defaults(Path out) throws IOException {
        try (DataOutputStream target = open(out)) {
            for (int parallelism = 1; parallelism <= KeyGroupRangeAssignment.UPPER_BOUND_MAX_PARALLELISM; parallelism++) {
                target.writeInt(KeyGroupRangeAssignment.computeDefaultMaxParallelism(parallelism));
            }
        }
    }

    private static void write(DataOutputSerializer buffer, DataOutputStream target) throws IOException {
        target.writeInt(buffer.length());
        target.write(buffer.getSharedBuffer(), 0, buffer.length());
    }

    private static DataOutputStream open(Path out) throws IOException {
        return new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(out), 1 << 16));
    }

    private static int[] integers(JsonNode array) {
        int[] out = new int[array.size()];
        for (int i = 0; i < out.length; i++) {
            out[i] = array.get(i).asInt();
        }
        return out;
    }
}
