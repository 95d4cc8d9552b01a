package stateferry.kryo;

import java.math.BigDecimal;
import java.time.Duration;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZonedDateTime;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Collection;
import java.util.Date;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;

/** Maps by Kryo with objects that Flink takes for POJOs, some of whose fields it leaves to Kryo or to its collections. */
public final class KryoMorePojos {
    private static final TypeInformation<?> S = Types.STRING;

    public enum Color { RED, GREEN, BLUE }

    public static class Inner {
        public String text;
        public Color color;

        public Inner() {}

        public Inner(String text, Color color) {
            this.text = text;
            this.color = color;
        }
    }

    public static class Closed {
        private final String text;
        private final int n;

        Closed(String text, int n) {
            this.text = text;
            this.n = n;
        }
    }

    public static class Dates {
        public LocalDate day;
        public LocalTime time;
        public LocalDateTime moment;
        public String name = "dates";
    }

    public static class Lists {
        public List<String> texts = new ArrayList<>();
        public List<Long> longs;
        public List<Inner> inners;
        public List<Color> colors;
        public List<UUID> ids;
        public List<LocalDate> days;
        public Collection<Integer> numbers;
        public int size;
    }

    public static class Maps {
        public Map<String, Long> counts = new HashMap<>();
        public Map<String, String> texts;
        public Map<Integer, Inner> inners;
        public Map<Color, Double> rates;
        public Map<UUID, Date> dates;
        public long total = 5;
    }

    public static class Sets {
        public Set<String> texts = new HashSet<>();
        public Set<Long> longs;
        public Set<Color> colors;
    }

    /** What every Flink leaves to Kryo. */
    @SuppressWarnings("rawtypes")
    public static class Others {
        public UUID id;
        public Object any;
        public Duration took;
        public ZonedDateTime when;
        public BitSet bits;
        public Number number;
        public Closed closed;
        public ArrayList<String> list;
        public HashMap<String, Long> map;
        public LinkedList linked;
        public TreeMap<String, Inner> sorted;
        public HashSet<UUID> set;
        public List raw;
        public Map rawMap;
        public Set rawSet;
        public String text = "others";
    }

    /** Collections of what Flink leaves to Kryo, or of classes that have collections. */
    public static class Mixed {
        public List<Object> objects;
        public Map<String, Object> any;
        public List<long[]> arrays;
        public Set<Inner> inners;
        public List<Closed> closed;
        public Map<String, Lists> lists;
        public Map<Integer, LocalDate> days;
    }

    public static class Tree {
        public List<Tree> children = new ArrayList<>();
        public Map<String, Tree> named = new HashMap<>();
        public Pair pair;
        public String name;
    }

    public static class Pair {
        public Tree left;
        public int n = 3;
    }

    public static class Nested {
        public List<List<String>> lists;
        public Map<String, List<Long>> map;
        public List<Map<String, Long>> maps;
        public Set<List<String>> sets;
    }

    public static class Wild {
        public List<?> any;
        public List<? extends Inner> bounded;
    }

    public static class Optionals {
        public Optional<String> text = Optional.of("text");
        public Optional<Inner> inner = Optional.of(new Inner("optional", Color.BLUE));
        public Optional<Long> none = Optional.empty();
        public AtomicReference<Long> last = new AtomicReference<>(5L);
        public AtomicReference<Closed> closed;
        public int n = 1;
    }

    public static class Decimals {
        public BigDecimal[] amounts = {BigDecimal.ONE};
    }

    public static class ListArrays {
        public List<String>[] lists;
        public int n;
    }

    /** Lists that Kryo 2 writes, but can't read again. */
    public static class Fixed {
        public List<List<Long>> fixed;
    }

    /** Collections with type arguments that no Flink has serializers for. */
    public static class Concrete {
        public ArrayList<String> texts;
        public ArrayList<String> nulls;
        public ArrayList<String> allNull;
        public ArrayList<String> empty = new ArrayList<>();
        public ArrayList<String> many = new ArrayList<>();
        public LinkedList<Long> boxed;
        public LinkedList<Long> boxedNulls;
        public TreeSet<String> sorted;
        public TreeSet<String> reverse = new TreeSet<>(java.util.Collections.reverseOrder());
        public HashSet<Long> longs;
        public ArrayDeque<String> deque;
        public HashMap<String, List<Long>> inner;
        public ArrayList<ArrayList<String>> lists;
        public TreeMap<String, Long> ordered;
        public HashMap<Color, LocalDate> days;
        public HashMap<String, Inner> inners;
        public ArrayList<Inner> open;
        public ArrayList<Color> colors;
        public ArrayList<UUID> ids;
    }

    public static class Arrays_ {
        public Inner[] inners;
        public UUID[] ids;
        public Color[] colors;
        public long[][] table;
        public Object[] any;
    }

    public static class Node {
        public Node next;
        public int n;
    }

    public static class Holder {
        public Lists lists;
        public Others others;
        public Dates dates;
        public Inner inner;
    }

    private KryoMorePojos() {}

    private static Map<Object, Object> linked(Object... parts) {
        Map<Object, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < parts.length; i += 2) {
            map.put(parts[i], parts[i + 1]);
        }
        return map;
    }

    @SafeVarargs
    private static <T> List<T> list(T... parts) {
        return new ArrayList<>(Arrays.asList(parts));
    }

    private static Dates dates() {
        Dates made = new Dates();
        made.day = LocalDate.of(2024, 2, 29);
        made.time = LocalTime.of(1, 2, 3, 4);
        made.moment = LocalDateTime.of(2024, 1, 2, 3, 4, 5, 6);
        return made;
    }

    private static Lists lists(String text, Inner inner) {
        Lists made = new Lists();
        made.texts.add(text);
        made.texts.add("\u00fc");
        made.longs = list(5L, -6L);
        made.inners = list(inner, inner, new Inner(text, Color.GREEN));
        made.colors = list(Color.RED, Color.RED);
        made.ids = list(new UUID(1, 2));
        made.days = list(LocalDate.EPOCH, LocalDate.of(2024, 2, 29));
        made.numbers = list(1, 2, 3);
        return made;
    }

    private static Maps maps(Inner inner) {
        Maps made = new Maps();
        made.counts.put("a", 1L);
        made.counts.put("b", -2L);
        made.texts = new HashMap<>(Map.of("k", "v"));
        made.inners = new HashMap<>(Map.of(5, inner));
        made.rates = new HashMap<>(Map.of(Color.BLUE, 14.3));
        made.dates = new HashMap<>(Map.of(new UUID(3, 4), new Date(1700000000123L)));
        return made;
    }

    private static Sets sets() {
        Sets made = new Sets();
        made.texts.add("a");
        made.longs = new LinkedHashSet<>(list(7L, 8L));
        made.colors = new HashSet<>(list(Color.GREEN));
        return made;
    }

    private static Others others(String text, Inner inner) {
        Others made = new Others();
        made.id = new UUID(5, 6);
        made.any = inner;
        made.took = Duration.ofSeconds(5, 7);
        made.when = ZonedDateTime.parse("2024-01-02T03:04:05.000000006+01:00[Europe/Berlin]");
        made.bits = BitSet.valueOf(new long[] {5, 7});
        made.number = 5L;
        made.closed = new Closed(text, 8);
        made.list = new ArrayList<>(list(text, "b"));
        made.map = new HashMap<>(Map.of("m", 9L));
        made.linked = new LinkedList<>(list(text, 5));
        made.sorted = new TreeMap<>(Map.of("x", inner, "y", inner));
        made.set = new HashSet<>(list(made.id));
        made.raw = list(inner, made.closed);
        made.rawMap = new HashMap<>(Map.of("r", inner));
        made.rawSet = new HashSet<>(list("s"));
        return made;
    }

    private static Mixed mixed(String text, Inner inner) {
        Mixed made = new Mixed();
        made.objects = list(text, 5L, inner);
        made.any = new HashMap<>(Map.of(text, inner));
        made.arrays = list(new long[] {1, 2}, new long[0]);
        made.inners = new HashSet<>(list(inner));
        made.closed = list(new Closed(text, 1), null);
        made.lists = new HashMap<>(Map.of("l", lists(text, inner)));
        made.days = new HashMap<>(Map.of(1, LocalDate.EPOCH));
        return made;
    }

    private static Tree tree() {
        Tree made = new Tree();
        made.children = list(new Tree(), new Tree());
        made.children.get(0).children.add(new Tree());
        made.named.put("first", made.children.get(0));
        made.pair = new Pair();
        made.pair.left = new Tree();
        return made;
    }

    private static Nested nested() {
        Nested made = new Nested();
        made.lists = list(list("a"), list("b", "c"));
        made.map = new HashMap<>(Map.of("k", list(1L)));
        made.maps = list(new HashMap<>(Map.of("k", 1L)));
        made.sets = new HashSet<>(list(list("a")));
        return made;
    }

    private static Concrete concrete(String text, Inner inner) {
        Concrete made = new Concrete();
        made.texts = new ArrayList<>(list(text, "b", text));
        made.nulls = new ArrayList<>(list(text, null, "c"));
        made.allNull = new ArrayList<>(list(null, (String) null));
        for (int i = 0; i < 100; i++) {
            made.many.add("text " + i / 2);
        }
        made.boxed = new LinkedList<>(list(1L, -2L));
        made.boxedNulls = new LinkedList<>(list(null, -2L));
        made.sorted = new TreeSet<>(list("a", "b"));
        made.reverse.add("x");
        made.reverse.add("y");
        made.longs = new HashSet<>(list(5L, 6L));
        made.deque = new ArrayDeque<>(list("d", text));
        made.inner = new HashMap<>(linkedOf("k", list(1L, 2L), "n", null, null, list((Long) null)));
        made.lists = new ArrayList<>(list(new ArrayList<>(list("a", "b")), new ArrayList<>(), null));
        made.ordered = new TreeMap<>(Map.of("o", 1L, "p", 2L));
        made.days = new HashMap<>(linkedOf(Color.RED, LocalDate.EPOCH, Color.BLUE, null));
        made.inners = new HashMap<>(linkedOf("i", inner, "j", inner));
        made.open = new ArrayList<>(list(inner, new Inner(text, Color.RED)));
        made.colors = new ArrayList<>(list(Color.RED, null, Color.RED));
        made.ids = new ArrayList<>(list(new UUID(1, 2), new UUID(3, 4)));
        return made;
    }

    @SuppressWarnings("unchecked")
    private static <K, V> Map<K, V> linkedOf(Object... parts) {
        return (Map<K, V>) linked(parts);
    }

    private static Arrays_ arrays(Inner inner) {
        Arrays_ made = new Arrays_();
        made.inners = new Inner[] {inner, null, inner};
        made.ids = new UUID[] {new UUID(1, 2)};
        made.colors = new Color[] {Color.RED, null};
        made.table = new long[][] {{1}, {2, 3}};
        made.any = new Object[] {"a", 5L, inner};
        return made;
    }

    public static void main(String[] arguments) {
        Inner inner = new Inner("text", Color.RED);
        String text = "a text that is said again";
        show("dates", Dates.class, dates(), new Dates());
        show("lists", Lists.class, lists("x", inner), new Lists());
        show("lists that share", Lists.class, lists(text, inner), lists(text, inner));
        show("maps", Maps.class, maps(inner), new Maps());
        show("maps that share", Maps.class, maps(inner), maps(inner));
        show("sets", Sets.class, sets(), new Sets());
        show("others", Others.class, others("x", inner), new Others());
        show("others that share", Others.class, others(text, inner), others(text, inner));
        show("mixed", Mixed.class, mixed("x", inner), new Mixed());
        show("mixed that share", Mixed.class, mixed(text, inner), mixed(text, inner));
        try {
            show("trees", Tree.class, tree(), new Tree());
        } catch (StackOverflowError failure) {
            // Flink 2 looks at the class of a collection's elements again and again.
        }
        show("nested", Nested.class, nested(), new Nested());
        show("arrays", Arrays_.class, arrays(inner), new Arrays_());
        show("concrete", Concrete.class, concrete("x", inner), new Concrete());
        show("concrete that share", Concrete.class, concrete(text, inner), concrete(text, inner));
        Fixed fixed = new Fixed();
        fixed.fixed = List.of(List.of(1L), List.of(2L, 3L));
        show("fixed", Fixed.class, fixed, new Fixed());
        show("arrays of decimals", Decimals.class, new Decimals(), new Decimals());
        show("wild", Wild.class, new Wild(), new Wild());
        Optionals none = new Optionals();
        none.text = null;
        none.last = new AtomicReference<>();
        none.closed = new AtomicReference<>(new Closed("c", 3));
        show("optionals", Optionals.class, new Optionals(), none);
        show("arrays of lists", ListArrays.class, new ListArrays(), new ListArrays());
        Node node = new Node();
        node.next = new Node();
        show("a node", Node.class, node, new Node());
        Holder holder = new Holder();
        holder.lists = lists(text, inner);
        holder.others = others(text, inner);
        holder.dates = dates();
        holder.inner = inner;
        show("in fields", Holder.class, holder, new Holder());
        show("registered", Holder.class, holder, holder, Inner.class, Holder.class, ArrayList.class, UUID.class);
    }

    private static void show(String name, Class<?> type, Object one, Object other, Class<?>... registered) {
        KryoValues.show(name, HashMap.class, Types.MAP(S, TypeInformation.of(type)), linked("a", one, "b", other), registered);
    }
}
