package stateferry.flink;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.flink.runtime.checkpoint.Checkpoints;
import org.apache.flink.runtime.checkpoint.OperatorState;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.runtime.checkpoint.StateObjectCollection;
import org.apache.flink.runtime.checkpoint.metadata.CheckpointMetadata;
import org.apache.flink.runtime.checkpoint.metadata.MetadataSerializers;
import org.apache.flink.runtime.state.KeyGroupsSavepointStateHandle;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.OperatorStateHandle;
import org.apache.flink.runtime.state.OperatorStreamStateHandle;
import org.apache.flink.runtime.state.StreamStateHandle;
import org.apache.flink.runtime.state.filesystem.FileStateHandle;
import org.apache.flink.runtime.state.filesystem.RelativeFileStateHandle;

/** Has Flink write a savepoint's metadata anew: in an older version of the format, or with absolute paths. */
final class MetadataRewriter {
    private MetadataRewriter() {}

    static void rewrite(Path savepoint, Path target, int version, boolean absolute) throws IOException {
        CheckpointMetadata metadata;
        try (DataInputStream in = new DataInputStream(Files.newInputStream(savepoint.resolve("_metadata")))) {
            metadata = Checkpoints.loadCheckpointMetadata(
                    in, MetadataRewriter.class.getClassLoader(), savepoint.toUri().toString());
        }
        if (absolute) {
            metadata.getOperatorStates().forEach(MetadataRewriter::makeAbsolute);
        }
        try (OutputStream out = Files.newOutputStream(target)) {
            Checkpoints.storeCheckpointMetadata(
                    metadata, new DataOutputStream(out), MetadataSerializers.getSerializer(version));
        }
    }

    private static void makeAbsolute(OperatorState operator) {
        for (Map.Entry<Integer, OperatorSubtaskState> subtask : operator.getSubtaskStates().entrySet()) {
            if (subtask.getValue().isFinished()) {
                continue;
            }
            OperatorSubtaskState.Builder builder = subtask.getValue().toBuilder();
            for (OperatorStateHandle handle : subtask.getValue().getManagedOperatorState()) {
                builder.setManagedOperatorState(new OperatorStreamStateHandle(
                        handle.getStateNameToPartitionOffsets(), absolute(handle.getDelegateStateHandle())));
            }
            for (KeyedStateHandle handle : subtask.getValue().getManagedKeyedState()) {
                KeyGroupsSavepointStateHandle keyed = (KeyGroupsSavepointStateHandle) handle;
                KeyedStateHandle moved = new KeyGroupsSavepointStateHandle(
                        keyed.getGroupRangeOffsets(), absolute(keyed.getDelegateStateHandle()));
                builder.setManagedKeyedState(StateObjectCollection.singleton(moved));
            }
            operator.putState(subtask.getKey(), builder.build());
        }
    }

    private static StreamStateHandle absolute(StreamStateHandle handle) {
        if (handle instanceof RelativeFileStateHandle relative) {
            return new FileStateHandle(relative.getFilePath(), relative.getStateSize());
        }
        return handle;
    }
}
