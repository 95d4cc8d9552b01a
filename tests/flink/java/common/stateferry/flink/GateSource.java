package stateferry.flink;

import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.streaming.api.watermark.Watermark;

/**
 * Keeps a job running. Emits the elements of window operators and joins (operator, key, timestamp, value), each from one
 * subtask, and the last watermark when it is asked for. Its first subtasks may end early.
 */
final class GateSource extends LegacySource<Tuple4<Integer, Integer, Long, Long>> {
    private static final long POLL_MILLIS = 10;
    private final String uid;
    private final String board;
    private final Spec.Job job;
    private final int finished;
    private volatile boolean running = true;

    GateSource(String uid, String board, Spec.Job job, int finished) {
        this.uid = uid;
        this.board = board;
        this.job = job;
        this.finished = finished;
    }

    @Override
    public void run(SourceContext<Tuple4<Integer, Integer, Long, Long>> context) throws Exception {
        Board shared = Board.of(board);
        int subtask = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
        if (shared.writing && subtask == 0) {
            WindowContents.emit(job, context::collectWithTimestamp);
        }
        if (subtask == 0) {
            int joined = Joined.emit(job, shared.writing, context::collectWithTimestamp);
            int sunk = KeepingSink.emit(job, shared.writing, context::collectWithTimestamp);
            shared.timersDue.addAndGet(joined + sunk);
        }
        shared.report(uid, subtask);
        boolean ends = subtask < finished;
        boolean watermarkSent = false;
        while (running && !ends) {
            if (shared.watermarkWanted && !watermarkSent) {
                watermarkSent = true;
                synchronized (context.getCheckpointLock()) {
                    context.emitWatermark(Watermark.MAX_WATERMARK);
                }
            }
            Thread.sleep(POLL_MILLIS);
        }
    }

    @Override
    public void cancel() {
        running = false;
    }
}
