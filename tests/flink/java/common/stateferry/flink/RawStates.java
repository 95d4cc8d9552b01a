package stateferry.flink;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.Random;
import org.apache.flink.runtime.state.KeyGroupStatePartitionStreamProvider;
import org.apache.flink.runtime.state.KeyedStateCheckpointOutputStream;
import org.apache.flink.runtime.state.OperatorStateCheckpointOutputStream;
import org.apache.flink.runtime.state.StateInitializationContext;
import org.apache.flink.runtime.state.StatePartitionStreamProvider;
import org.apache.flink.runtime.state.StateSnapshotContext;

/** State that an operator writes by itself, past all serializers: a text per key group, and texts of no key. */
final class RawStates {
    private final Spec.Operator operator;
    private final Contents contents;

    RawStates(Spec.Operator operator, Contents contents) {
        this.operator = operator;
        this.contents = contents;
    }

    void write(StateSnapshotContext context, int subtask, int subtasks, Lines lines) throws Exception {
        if (operator.rawKeyed) {
            KeyedStateCheckpointOutputStream out = context.getRawKeyedOperatorStateOutput();
            for (int group : out.getKeyGroupList()) {
                Random random = contents.random(operator.uid, "raw-keyed", group);
                if (random.nextBoolean()) {
                    out.startNewKeyGroup(group);
                    lines.rawKeyed(group, write(new DataOutputStream(out), random));
                }
            }
        }
        if (operator.rawElements > 0) {
            OperatorStateCheckpointOutputStream out = context.getRawOperatorStateOutput();
            for (int i = subtask; i < operator.rawElements; i += subtasks) {
                out.startNewPartition();
                lines.raw(write(new DataOutputStream(out), contents.random(operator.uid, "raw-operator", i)));
            }
        }
    }

    void read(StateInitializationContext context, Lines lines) throws Exception {
        if (operator.rawKeyed) {
            for (KeyGroupStatePartitionStreamProvider provider : context.getRawKeyedStateInputs()) {
                lines.rawKeyed(provider.getKeyGroupId(), new DataInputStream(provider.getStream()).readUTF());
            }
        }
        for (StatePartitionStreamProvider provider : context.getRawOperatorStateInputs()) {
            lines.raw(new DataInputStream(provider.getStream()).readUTF());
        }
    }

    private static String write(DataOutputStream out, Random random) throws IOException {
        String text = "raw" + random.nextInt() + "-".repeat(random.nextInt(500));
        out.writeUTF(text);
        out.flush();
        return text;
    }
}
