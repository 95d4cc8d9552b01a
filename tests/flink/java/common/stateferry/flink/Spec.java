package stateferry.flink;

import java.io.Serializable;
import java.util.List;
import java.util.Map;
import stateferry.flink.types.Composites.TtlKind;
import stateferry.flink.types.Kind;
import stateferry.flink.types.Kinds;

/** What a job holds, as the commands describe it. Field names in snake case are the JSON's. */
public final class Spec {
    private Spec() {}

    /** One job: what it holds and how it runs. */
    public static final class Job implements Serializable {
        public long seed = 1;
        public int parallelism = 1;
        public Integer maxParallelism;
        public String backend = "rocksdb";
        public boolean snappy;
        public int inlineThreshold = 20480;
        /** Subclasses that the job registers as POJO types. */
        public List<String> registered = List.of();
        /** Further settings of Flink itself. */
        public Map<String, String> settings = Map.of();
        /** How often the contents are drafted and changed, with a checkpoint between, before they are final. */
        public int rounds;
        public List<Operator> operators = List.of();
    }

    /** One operator with state: generic ({@code keyed} or {@code plain}), or Flink's own {@code window} or {@code source}. */
    public static final class Operator implements Serializable {
        public String uid;
        public String name;
        public String type = "keyed";
        public Integer parallelism;
        public Integer maxParallelism;
        public String key;
        public int keys;
        public List<State> states = List.of();
        public Timers timers;
        public List<OperatorState> operatorStates = List.of();
        /** Windows: what they hold, and how elements are assigned to them. */
        public String function = "reduce";
        public String assigner = "tumbling";
        /** Plain operators: how many subtasks of their own source, counted from the first, end before the savepoint. */
        public int finished;
        /** Windows: whether their state is accessed asynchronously. */
        public boolean asynchronous;
        /** Whether some of the key groups have state that the operator writes by itself, and how much of no key. */
        public boolean rawKeyed;
        public int rawElements;

        String name() {
            return name == null ? uid : name;
        }
    }

    /** One keyed state. */
    public static final class State implements Serializable {
        public String name;
        public String kind = "VALUE";
        public String type;
        /** {@code stamped}: timestamps drawn and known; {@code config}: Flink's own TTL, in force from the write on. */
        public String ttl;
        public long ttlMillis = 30L * 86_400_000L;
        public String namespace;
        public int namespaces = 1;
        /** The share of the keys, in the order in which they are drawn, that has this state. */
        public double[] share = {0, 1};
        public String update = "OnCreateAndWrite";
        /** A line of Java that declares the state, as in a job's code; {@code type} then only says how it is shown. */
        public String java;

        boolean stamped() {
            return "stamped".equals(ttl);
        }

        boolean configured() {
            return "config".equals(ttl);
        }

        /** The type of everything that this state holds for one key and namespace. */
        Kind<?> content() {
            Kind<?> plain = Kinds.parse(type);
            return switch (kind) {
                case "MAP" -> stamped() ? Kinds.stampedMap(plain) : plain;
                case "LIST" -> Kinds.listOf(stamped() ? new TtlKind<>(plain) : plain);
                default -> stamped() ? new TtlKind<>(plain) : plain;
            };
        }
    }

    /** Timers: so many of each kind for each key. */
    public static final class Timers implements Serializable {
        public String service = "user-timers";
        public String namespace;
        public int event;
        public int processing;
        /** Processing-time timers that are not due while the tests run. */
        public int far;
        public double[] share = {0, 1};
    }

    /** A list ({@code SPLIT} or {@code UNION}) or broadcast state of an operator. */
    public static final class OperatorState implements Serializable {
        public String name;
        public String mode = "SPLIT";
        public String type;
        public int elements;
    }
}
