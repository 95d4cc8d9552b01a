package stateferry.flink;

import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.apache.flink.api.common.serialization.SerializerConfig;
import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.runtime.state.KeyedStateBackend;
import org.apache.flink.runtime.state.StateInitializationContext;
import org.apache.flink.runtime.state.StateSnapshotContext;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.runtime.state.internal.InternalKvState;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.InternalTimer;
import org.apache.flink.streaming.api.operators.InternalTimerService;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.Triggerable;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import stateferry.flink.types.Kinds;

/** Holds what its scenario says: writes it on a first start, and shows all of it after a restore. */
@SuppressWarnings({"unchecked", "rawtypes"})
final class ScenarioOperator extends AbstractStreamOperator<Tuple4<Integer, Integer, Long, Long>>
        implements OneInputStreamOperator<
                        Tuple4<Integer, Integer, Long, Long>, Tuple4<Integer, Integer, Long, Long>>,
                Triggerable<Object, Object> {
    private final String boardId;
    private final Spec.Job job;
    private final Spec.Operator spec;

    private transient Board board;
    private transient Contents contents;
    private transient List<Object> keys;
    private transient InternalTimerService timers;
    private transient boolean pastTimersWritten;
    private transient Map<Spec.State, State> states;
    private transient int round;

    ScenarioOperator(String boardId, Spec.Job job, Spec.Operator spec) {
        this.boardId = boardId;
        this.job = job;
        this.spec = spec;
    }

    @Override
    public void initializeState(StateInitializationContext context) throws Exception {
        super.initializeState(context);
        board = Board.of(boardId);
        contents = new Contents(job.seed);
        OperatorStates states = new OperatorStates(spec, contents, config());
        int subtask = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
        int subtasks = getRuntimeContext().getTaskInfo().getNumberOfParallelSubtasks();
        if (board.writing) {
            // What a subtask held is gone once it has finished.
            Consumer<ObjectNode> lines = subtask < spec.finished ? line -> {} : board::write;
            states.write(context.getOperatorStateStore(), subtask, subtasks, new Lines(spec, lines));
        } else {
            Consumer<ObjectNode> withSubtask = line -> board.write(line.put("subtask", subtask));
            states.read(context.getOperatorStateStore(), new Lines(spec, withSubtask));
            new RawStates(spec, contents).read(context, new Lines(spec, withSubtask));
        }
    }

    @Override
    public void open() throws Exception {
        super.open();
        if (spec.key != null) {
            keys = contents.keys(spec);
            states = new LinkedHashMap<>();
            Declarations.compile(spec.states);
            for (Spec.State state : spec.states) {
                TypeSerializer serializer = namespaceSerializer(state.namespace);
                states.put(state, getOrCreateKeyedState(serializer, StateAccess.descriptor(state, config())));
            }
            if (spec.timers != null) {
                TypeSerializer serializer = namespaceSerializer(spec.timers.namespace);
                timers = getInternalTimerService(spec.timers.service, serializer, this);
            }
            if (board.writing) {
                write();
            } else {
                show(states);
            }
        }
        board.report(spec.uid, getRuntimeContext().getTaskInfo().getIndexOfThisSubtask());
    }

    /** Each key has a round of its own, in which it gets what it is to hold; until then it holds drafts. */
    private void write() throws Exception {
        for (int key = 0; key < keys.size(); key++) {
            if (!owns(keys.get(key))) {
                continue;
            }
            setCurrentKey(keys.get(key));
            int own = key % (job.rounds + 1);
            for (Map.Entry<Spec.State, State> state : states.entrySet()) {
                if (round < own) {
                    draft(state.getKey(), state.getValue(), key);
                } else if (round == own) {
                    write(state.getKey(), state.getValue(), key);
                } else if (round == own + 1) {
                    complete(state.getKey(), state.getValue(), key);
                }
            }
            if (spec.timers != null && round <= own) {
                draftTimers(key, round < own);
                if (round == own) {
                    writeTimers(key, "event", spec.timers.event);
                    writeTimers(key, "far", spec.timers.far);
                }
            }
        }
    }

    /** What an earlier round wrote stays in part. */
    private void draft(Spec.State state, State store, int key) throws Exception {
        Contents drafts = new Contents(job.seed + 1 + round);
        List<Object> namespaces = contents.namespaces(spec, state.namespace, state.namespaces, key);
        for (int i = 0; i < namespaces.size(); i++) {
            ((InternalKvState) store).setCurrentNamespace(namespaces.get(i));
            Object draft = drafts.content(spec, state, key, keys.size(), i);
            if (draft == null || (key + round) % 5 == 0) {
                store.clear();
            } else {
                StateAccess.draft(state, store, draft);
            }
        }
    }

    private void write(Spec.State state, State store, int key) throws Exception {
        List<Object> namespaces = contents.namespaces(spec, state.namespace, state.namespaces, key);
        for (int i = 0; i < namespaces.size(); i++) {
            Object content = contents.content(spec, state, key, keys.size(), i);
            ((InternalKvState) store).setCurrentNamespace(namespaces.get(i));
            if (round > 0) {
                store.clear();
            }
            if (content == null) {
                continue;
            }
            long before = System.currentTimeMillis();
            StateAccess.write(state, store, round < job.rounds ? StateAccess.begun(state, content) : content);
            long after = System.currentTimeMillis();
            Lines lines = new Lines(spec, line -> {
                if (state.configured()) {
                    line.putArray("timestamp_between").add(before).add(after);
                }
                board.write(line);
            });
            lines.content(state, keys.get(key), namespaces.get(i), group(keys.get(key)), content);
        }
    }

    /** Adds to the lists that {@link #write} began. */
    private void complete(Spec.State state, State store, int key) throws Exception {
        List<Object> namespaces = contents.namespaces(spec, state.namespace, state.namespaces, key);
        for (int i = 0; i < namespaces.size(); i++) {
            Object content = contents.content(spec, state, key, keys.size(), i);
            if (content != null) {
                ((InternalKvState) store).setCurrentNamespace(namespaces.get(i));
                StateAccess.complete(state, store, content);
            }
        }
    }

    /** Removes the timers of the round before, and registers others if there is another one. */
    private void draftTimers(int key, boolean more) {
        List<Object> namespaces = contents.namespaces(spec, spec.timers.namespace, 2, key);
        for (int i = 0; i < namespaces.size(); i++) {
            if (round > 0) {
                for (long timestamp : drafted(round - 1, key, i)) {
                    timers.deleteEventTimeTimer(namespaces.get(i), timestamp);
                }
            }
            if (more) {
                for (long timestamp : drafted(round, key, i)) {
                    timers.registerEventTimeTimer(namespaces.get(i), timestamp);
                }
            }
        }
    }

    private List<Long> drafted(int of, int key, int namespace) {
        return new Contents(job.seed + 1 + of).timers(spec, "event", 1 + spec.timers.event, key, keys.size(), namespace);
    }

    private void writeTimers(int key, String kind, int count) {
        Lines lines = new Lines(spec, board::write);
        List<Object> namespaces = contents.namespaces(spec, spec.timers.namespace, 2, key);
        for (int i = 0; i < namespaces.size(); i++) {
            for (long timestamp : contents.timers(spec, kind, count, key, keys.size(), i)) {
                boolean event = kind.equals("event");
                if (event) {
                    timers.registerEventTimeTimer(namespaces.get(i), timestamp);
                } else {
                    timers.registerProcessingTimeTimer(namespaces.get(i), timestamp);
                }
                String shown = event ? "event" : "processing";
                lines.timer(spec.timers, shown, keys.get(key), namespaces.get(i), timestamp, group(keys.get(key)));
            }
        }
    }

    /** Timers whose time has come would fire at once, were they not registered in the very step that takes the snapshot. */
    @Override
    public void prepareSnapshotPreBarrier(long checkpointId) throws Exception {
        super.prepareSnapshotPreBarrier(checkpointId);
        if (!board.writing || keys == null) {
            return;
        }
        if (round < job.rounds) {
            round++;
            write();
        }
        if (round < job.rounds || spec.timers == null || pastTimersWritten) {
            return;
        }
        pastTimersWritten = true;
        for (int key = 0; key < keys.size(); key++) {
            if (owns(keys.get(key))) {
                setCurrentKey(keys.get(key));
                writeTimers(key, "processing", spec.timers.processing);
            }
        }
    }

    @Override
    public void snapshotState(StateSnapshotContext context) throws Exception {
        super.snapshotState(context);
        if (board.writing) {
            int subtask = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
            int subtasks = getRuntimeContext().getTaskInfo().getNumberOfParallelSubtasks();
            new RawStates(spec, contents).write(context, subtask, subtasks, new Lines(spec, board::write));
        }
    }

    @Override
    protected boolean isUsingCustomRawKeyedState() {
        return spec.rawKeyed;
    }

    private void show(Map<Spec.State, State> states) throws Exception {
        Lines lines = new Lines(spec, board::write);
        for (Map.Entry<Spec.State, State> state : states.entrySet()) {
            Set<Tuple2<Object, Object>> scanned = scan(state.getKey().name);
            for (Tuple2<Object, Object> place : scanned) {
                show(state.getKey(), state.getValue(), place, lines);
            }
            showUnscanned(state.getKey(), state.getValue(), scanned, lines);
        }
        if (timers != null) {
            showTimers(lines);
        }
    }

    private Set<Tuple2<Object, Object>> scan(String state) {
        KeyedStateBackend<Object> backend = getKeyedStateBackend();
        Set<Tuple2<Object, Object>> out = new LinkedHashSet<>();
        try (Stream<Tuple2<Object, Object>> places = backend.getKeysAndNamespaces(state)) {
            places.forEach(place -> out.add(Tuple2.of(place.f0, place.f1)));
        }
        return out;
    }

    private void show(Spec.State state, State store, Tuple2<Object, Object> place, Lines lines) throws Exception {
        if (!owns(place.f0)) {
            lines.anomaly(state.name, "scanned by a subtask that does not own the key", place.f0);
            return;
        }
        Object content = lookUp(state, store, place);
        if (content != null) {
            lines.content(state, place.f0, place.f1, group(place.f0), content);
        } else if (!state.configured()) {
            lines.anomaly(state.name, "found by scan but not by key", place.f0);
        }
    }

    /** What a job that knows its keys would find although no scan finds it. */
    private void showUnscanned(Spec.State state, State store, Set<Tuple2<Object, Object>> scanned, Lines lines)
            throws Exception {
        for (int key = 0; key < keys.size(); key++) {
            if (!owns(keys.get(key))) {
                continue;
            }
            for (Object namespace : contents.namespaces(spec, state.namespace, state.namespaces, key)) {
                Tuple2<Object, Object> place = Tuple2.of(keys.get(key), namespace);
                if (!scanned.contains(place) && lookUp(state, store, place) != null) {
                    lines.anomaly(state.name, "found by key but not by scan", place.f0);
                }
            }
        }
    }

    private Object lookUp(Spec.State state, State store, Tuple2<Object, Object> place) throws Exception {
        setCurrentKey(place.f0);
        ((InternalKvState) store).setCurrentNamespace(place.f1);
        return StateAccess.read(state, store);
    }

    private void showTimers(Lines lines) throws Exception {
        AtomicInteger due = new AtomicInteger();
        long now = System.currentTimeMillis();
        timers.forEachEventTimeTimer((namespace, timestamp) -> {
            due.incrementAndGet();
            showTimer("event", namespace, (Long) timestamp, lines);
        });
        timers.forEachProcessingTimeTimer((namespace, timestamp) -> {
            if ((Long) timestamp <= now) {
                due.incrementAndGet();
            }
            showTimer("processing", namespace, (Long) timestamp, lines);
        });
        board.timersDue.addAndGet(due.get());
    }

    private void showTimer(String kind, Object namespace, long timestamp, Lines lines) {
        Object key = getCurrentKey();
        if (owns(key)) {
            lines.timer(spec.timers, kind, key, namespace, timestamp, group(key));
        } else {
            lines.anomaly(kind, "timer in a subtask that does not own the key", key);
        }
    }

    @Override
    public void onEventTime(InternalTimer<Object, Object> timer) {
        fired("event", timer);
    }

    @Override
    public void onProcessingTime(InternalTimer<Object, Object> timer) {
        fired("processing", timer);
    }

    private void fired(String kind, InternalTimer<Object, Object> timer) {
        if (board.writing) {
            return;
        }
        Lines lines = new Lines(spec, line -> board.write(line.put("fired", true)));
        lines.timer(spec.timers, kind, timer.getKey(), timer.getNamespace(), timer.getTimestamp(), group(timer.getKey()));
        board.timersDue.decrementAndGet();
    }

    @Override
    public void processElement(StreamRecord<Tuple4<Integer, Integer, Long, Long>> element) {}

    private boolean owns(Object key) {
        int subtask = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
        int subtasks = getRuntimeContext().getTaskInfo().getNumberOfParallelSubtasks();
        return KeyGroupRangeAssignment.assignKeyToParallelOperator(key, maxParallelism(), subtasks) == subtask;
    }

    private int group(Object key) {
        return KeyGroupRangeAssignment.assignToKeyGroup(key, maxParallelism());
    }

    private int maxParallelism() {
        return getRuntimeContext().getTaskInfo().getMaxNumberOfParallelSubtasks();
    }

    private SerializerConfig config() {
        return getExecutionConfig().getSerializerConfig();
    }

    private TypeSerializer<?> namespaceSerializer(String expression) {
        return expression == null ? VoidNamespaceSerializer.INSTANCE : Kinds.parse(expression).serializer(config());
    }
}
