package stateferry.flink;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.flink.runtime.state.VoidNamespace;
import stateferry.flink.types.Kind;
import stateferry.flink.types.Kinds;

/** What a job holds, drawn from its seed: the same objects in every subtask, every run and every JVM. */
final class Contents {
    private static final int ATTEMPTS_PER_KEY = 200;
    private static final long EVENT_TIME_RANGE = 1L << 42;
    private static final long FIRST_PROCESSING_TIME = 1_500_000_000_000L;
    private static final long PROCESSING_TIME_RANGE = 10_000_000_000L;
    private static final long FAR_AWAY = 4_000_000_000_000L;

    private final long seed;

    Contents(long seed) {
        this.seed = seed;
    }

    /** Distinct keys; fewer than asked for when the type has fewer values. */
    List<Object> keys(Spec.Operator operator) {
        Kind<?> kind = Kinds.parse(operator.key);
        Random random = random(operator.uid, "keys");
        Set<Object> keys = new LinkedHashSet<>();
        for (int i = 0; keys.size() < operator.keys && i < operator.keys * ATTEMPTS_PER_KEY; i++) {
            keys.add(kind.draw(random));
        }
        return new ArrayList<>(keys);
    }

    /** The namespaces in which a key has a state or timers. */
    List<Object> namespaces(Spec.Operator operator, String expression, int count, int key) {
        if (expression == null) {
            return List.of(VoidNamespace.INSTANCE);
        }
        Random random = random(operator.uid, "namespaces", key);
        Set<Object> out = new LinkedHashSet<>();
        for (int i = 0; out.size() < count && i < count * ATTEMPTS_PER_KEY; i++) {
            out.add(Kinds.parse(expression).draw(random));
        }
        return new ArrayList<>(out);
    }

    /** What a state holds for a key in a namespace; null where it holds nothing. */
    Object content(Spec.Operator operator, Spec.State state, int key, int keys, int namespace) {
        if (!within(state.share, key, keys)) {
            return null;
        }
        Object drawn = state.content().draw(random(operator.uid, state.name, key, namespace));
        boolean nothing = state.kind.equals("MAP") && ((Map<?, ?>) drawn).isEmpty();
        return nothing ? null : drawn;
    }

    /** Timestamps of timers of one of the kinds {@code event}, {@code processing} (past) and {@code far} (future). */
    List<Long> timers(Spec.Operator operator, String kind, int count, int key, int keys, int namespace) {
        Set<Long> out = new LinkedHashSet<>();
        if (!within(operator.timers.share, key, keys)) {
            return List.of();
        }
        Random random = random(operator.uid, operator.timers.service, kind, key, namespace);
        while (out.size() < count) {
            out.add(switch (kind) {
                case "event" -> (long) (random.nextGaussian() * EVENT_TIME_RANGE);
                case "processing" -> FIRST_PROCESSING_TIME + (long) (random.nextDouble() * PROCESSING_TIME_RANGE);
                default -> FAR_AWAY + random.nextInt(1 << 30);
            });
        }
        return new ArrayList<>(out);
    }

    List<Object> elements(Spec.Operator operator, Spec.OperatorState state) {
        Kind<?> kind = Kinds.parse(state.type);
        Random random = random(operator.uid, state.name, "elements");
        List<Object> out = new ArrayList<>();
        for (int i = 0; i < state.elements; i++) {
            out.add(kind.draw(random));
        }
        return out;
    }

    /** Seeded by what the values are for, so that no value depends on the order in which others are drawn. */
    Random random(Object... purpose) {
        long hash = seed * 0x9e3779b97f4a7c15L + 1;
        for (Object part : purpose) {
            for (char c : part.toString().toCharArray()) {
                hash = (hash ^ c) * 0x100000001b3L;
            }
            hash = (hash ^ (hash >>> 29)) * 0xbf58476d1ce4e5b9L;
        }
        return new Random(hash);
    }

    private static boolean within(double[] share, int key, int keys) {
        return key >= Math.round(share[0] * keys) && key < Math.round(share[1] * keys);
    }
}
