package stateferry.flink;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.WindowAssigner;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;

/** The elements that are sent through real window operators, and what these must hold afterwards. */
final class WindowContents {
    static final TypeInformation<Tuple4<Integer, Integer, Long, Long>> ELEMENT =
            Types.TUPLE(Types.INT, Types.INT, Types.LONG, Types.LONG);
    private static final long WIDTH = 60_000;
    private static final long FIRST_WINDOW = 1_700_000_040_000L;
    private static final int WINDOWS = 3;
    private static final String ELEMENT_TYPE = "Tuple4<Integer,Integer,Long,Long>";

    private WindowContents() {}

    /** Takes an element and its timestamp. */
    interface Emitter {
        void emit(Tuple4<Integer, Integer, Long, Long> element, long timestamp);
    }

    static WindowAssigner<Object, TimeWindow> assigner(Spec.Operator operator) {
        Duration width = Duration.ofMillis(WIDTH);
        return operator.assigner.equals("session")
                ? EventTimeSessionWindows.withGap(width)
                : TumblingEventTimeWindows.of(width);
    }

    static void emit(Spec.Job job, Emitter emitter) {
        for (int i = 0; i < job.operators.size(); i++) {
            Spec.Operator operator = job.operators.get(i);
            if (operator.type.equals("window")) {
                for (Tuple4<Integer, Integer, Long, Long> element : elements(job, operator, i)) {
                    emitter.emit(element, element.f2);
                }
            }
        }
    }

    /** Two elements for each key and window; less than a window's width apart. */
    private static List<Tuple4<Integer, Integer, Long, Long>> elements(Spec.Job job, Spec.Operator operator, int index) {
        Contents contents = new Contents(job.seed);
        List<Tuple4<Integer, Integer, Long, Long>> out = new ArrayList<>();
        int windows = operator.assigner.equals("session") ? 1 : WINDOWS;
        for (int key = 0; key < contents.keys(operator).size(); key++) {
            Random random = contents.random(operator.uid, "elements", key);
            for (int window = 0; window < windows; window++) {
                long start = FIRST_WINDOW + window * WIDTH;
                long first = start + random.nextInt((int) WIDTH / 2);
                out.add(Tuple4.of(index, key, first, (long) random.nextInt()));
                out.add(Tuple4.of(index, key, first + 1 + random.nextInt((int) WIDTH / 3), (long) random.nextInt()));
            }
        }
        return out;
    }

    static void expect(Spec.Job job, Spec.Operator operator, int index, int maxParallelism, Lines lines) {
        Contents contents = new Contents(job.seed);
        List<Object> keys = contents.keys(operator);
        Map<Integer, Map<Long, List<Tuple4<Integer, Integer, Long, Long>>>> panes = new TreeMap<>();
        for (Tuple4<Integer, Integer, Long, Long> element : elements(job, operator, index)) {
            long pane = element.f2 - Math.floorMod(element.f2, WIDTH);
            panes.computeIfAbsent(element.f1, k -> new TreeMap<>()).computeIfAbsent(pane, k -> new ArrayList<>())
                    .add(element);
        }
        panes.forEach((keyIndex, byWindow) -> byWindow.forEach((start, elements) -> {
            Object key = keys.get(keyIndex);
            int group = KeyGroupRangeAssignment.assignToKeyGroup(key, maxParallelism);
            TimeWindow held = new TimeWindow(start, start + WIDTH);
            TimeWindow fires = held;
            if (operator.assigner.equals("session")) {
                held = new TimeWindow(elements.get(0).f2, elements.get(0).f2 + WIDTH);
                fires = new TimeWindow(held.getStart(), elements.get(1).f2 + WIDTH);
                lines.content(mergingState(), key, VoidNamespace.INSTANCE, group, List.of(Tuple2.of(fires, held)));
            }
            lines.content(state(operator), key, held, group, content(operator, elements));
            lines.timer(timers(), "event", key, fires, fires.maxTimestamp(), group);
        }));
    }

    private static Object content(Spec.Operator operator, List<Tuple4<Integer, Integer, Long, Long>> elements) {
        long sum = elements.stream().mapToLong(e -> e.f3).sum();
        return switch (operator.function) {
            case "reduce" -> Tuple4.of(elements.get(0).f0, elements.get(0).f1, elements.get(0).f2, sum);
            case "aggregate" -> Tuple2.of((long) elements.size(), sum);
            default -> elements;
        };
    }

    private static Spec.State state(Spec.Operator operator) {
        Spec.State out = new Spec.State();
        out.name = "window-contents";
        out.namespace = "TimeWindow";
        out.kind = switch (operator.function) {
            case "reduce" -> "REDUCING";
            case "aggregate" -> "AGGREGATING";
            default -> "LIST";
        };
        out.type = operator.function.equals("aggregate") ? "Tuple2<Long,Long>" : ELEMENT_TYPE;
        return out;
    }

    private static Spec.Timers timers() {
        Spec.Timers out = new Spec.Timers();
        out.service = "window-timers";
        out.namespace = "TimeWindow";
        return out;
    }

    private static Spec.State mergingState() {
        Spec.State out = new Spec.State();
        out.name = "merging-window-set";
        out.kind = "LIST";
        out.type = "Tuple2<TimeWindow,TimeWindow>";
        return out;
    }
}
