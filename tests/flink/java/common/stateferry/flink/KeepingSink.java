package stateferry.flink;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.apache.flink.api.connector.sink2.Committer;
import org.apache.flink.api.connector.sink2.CommitterInitContext;
import org.apache.flink.api.connector.sink2.CommittingSinkWriter;
import org.apache.flink.api.connector.sink2.StatefulSinkWriter;
import org.apache.flink.api.connector.sink2.SupportsCommitter;
import org.apache.flink.api.connector.sink2.SupportsWriterState;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/** A sink whose writers keep all that they get, and whose committers have it still to commit: after a restore they show it. */
final class KeepingSink extends LegacySink<Long> implements SupportsWriterState<Long, Long>, SupportsCommitter<Long> {
    private static final int ELEMENTS = 20;
    private final String board;
    private final Spec.Operator operator;

    KeepingSink(String board, Spec.Operator operator) {
        this.board = board;
        this.operator = operator;
    }

    private static boolean isOne(Spec.Operator operator) {
        return operator.type.equals("sink");
    }

    /** Emits the elements of sinks if the job writes. Returns how many will be shown, if it doesn't. */
    static int emit(Spec.Job job, boolean writing, WindowContents.Emitter emitter) {
        int due = 0;
        for (int i = 0; i < job.operators.size(); i++) {
            for (long value : isOne(job.operators.get(i)) ? values() : List.<Long>of()) {
                due += 2;
                if (writing) {
                    emitter.emit(Tuple4.of(i, 0, 0L, value), 0);
                }
            }
        }
        return due;
    }

    private static List<Long> values() {
        List<Long> out = new ArrayList<>();
        for (long i = 0; i < ELEMENTS; i++) {
            out.add(i * 1_000_003);
        }
        return out;
    }

    static void expect(Spec.Operator operator, Lines lines) {
        for (long value : isOne(operator) ? values() : List.<Long>of()) {
            lines.element(state("kept"), value);
            lines.element(state("pending"), value);
        }
    }

    private static Spec.OperatorState state(String name) {
        Spec.OperatorState out = new Spec.OperatorState();
        out.name = name;
        out.type = "Long";
        return out;
    }

    private void show(String name, long value) {
        Board shared = Board.of(board);
        if (!shared.writing) {
            new Lines(operator, shared::write).element(state(name), value);
            shared.timersDue.decrementAndGet();
        }
    }

    @Override
    public Writer createWriter(WriterInitContext context) {
        return new Writer();
    }

    @Override
    public Writer restoreWriter(WriterInitContext context, Collection<Long> restored) {
        restored.forEach(value -> show("kept", value));
        return new Writer();
    }

    @Override
    public Committer<Long> createCommitter(CommitterInitContext context) {
        return new Committer<>() {
            @Override
            public void commit(Collection<CommitRequest<Long>> requests) {
                requests.forEach(request -> show("pending", request.getCommittable()));
            }

            @Override
            public void close() {}
        };
    }

    @Override
    public SimpleVersionedSerializer<Long> getWriterStateSerializer() {
        return new LongBytes();
    }

    @Override
    public SimpleVersionedSerializer<Long> getCommittableSerializer() {
        return new LongBytes();
    }

    private static final class Writer implements StatefulSinkWriter<Long, Long>, CommittingSinkWriter<Long, Long> {
        private final List<Long> kept = new ArrayList<>();

        @Override
        public void write(Long value, Context context) {
            kept.add(value);
        }

        @Override
        public void flush(boolean endOfInput) {}

        @Override
        public Collection<Long> prepareCommit() {
            return List.copyOf(kept);
        }

        @Override
        public List<Long> snapshotState(long checkpoint) {
            return List.copyOf(kept);
        }

        @Override
        public void close() {}
    }

    private static final class LongBytes implements SimpleVersionedSerializer<Long> {
        @Override
        public int getVersion() {
            return 1;
        }

        @Override
        public byte[] serialize(Long value) {
            return ByteBuffer.allocate(Long.BYTES).putLong(value).array();
        }

        @Override
        public Long deserialize(int version, byte[] bytes) {
            return ByteBuffer.wrap(bytes).getLong();
        }
    }
}
