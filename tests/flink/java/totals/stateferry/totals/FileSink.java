package stateferry.totals;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Shows each total exactly once: as a file for every checkpoint, which appears when that is complete. What a checkpoint
 * holds and hasn't shown yet is shown by whoever is restored from it; twice is as good as once, the file is the same.
 */
final class FileSink extends ProcessFunction<Total, Void> implements CheckpointedFunction, CheckpointListener {
    private static final long serialVersionUID = 1L;
    private final String folder;
    private final long checkpointMillis;
    private transient StringBuilder lines;
    private transient List<Tuple3<Long, String, String>> pending;
    private transient ListState<Tuple3<Long, String, String>> checkpointed;

    /** A checkpoint takes at least so many milliseconds. */
    FileSink(String folder, long checkpointMillis) {
        this.folder = folder;
        this.checkpointMillis = checkpointMillis;
    }

    @Override
    public void initializeState(FunctionInitializationContext context) throws Exception {
        lines = new StringBuilder();
        pending = new ArrayList<>();
        checkpointed = context.getOperatorStateStore().getListState(
                new ListStateDescriptor<>("pending", Types.TUPLE(Types.LONG, Types.STRING, Types.STRING)));
        for (Tuple3<Long, String, String> file : checkpointed.get()) {
            show(file);
        }
    }

    @Override
    public void processElement(Total total, Context context, Collector<Void> out) {
        lines.append(total.line());
    }

    @Override
    public void snapshotState(FunctionSnapshotContext context) throws Exception {
        Thread.sleep(checkpointMillis);
        if (lines.length() > 0) {
            pending.add(Tuple3.of(context.getCheckpointId(), UUID.randomUUID().toString(), lines.toString()));
            lines = new StringBuilder();
        }
        checkpointed.update(pending);
    }

    @Override
    public void notifyCheckpointComplete(long checkpointId) throws Exception {
        List<Tuple3<Long, String, String>> later = new ArrayList<>();
        for (Tuple3<Long, String, String> file : pending) {
            if (file.f0 <= checkpointId) {
                show(file);
            } else {
                later.add(file);
            }
        }
        pending = later;
    }

    private void show(Tuple3<Long, String, String> file) throws Exception {
        Path shown = Path.of(folder, file.f1);
        Path draft = Path.of(folder, "." + UUID.randomUUID());
        Files.write(draft, file.f2.getBytes(StandardCharsets.US_ASCII));
        Files.move(draft, shown, StandardCopyOption.ATOMIC_MOVE);
    }
}
