package stateferry.kryo;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;

/** Maps whose values are objects of the classes of a job, which Kryo writes by their fields. */
public final class KryoThings {
    private static final TypeInformation<?> S = Types.STRING;

    enum Color { RED, GREEN, BLUE }

    enum Shape {
        ROUND { @Override int corners() { return 0; } },
        SQUARE { @Override int corners() { return 4; } };

        abstract int corners();
    }

    public static class Thing {
        public static final String NEVER = "static";
        public String name = "x";
        public int n = 1;
        public transient int cache = 7;
        protected Long boxed;
        private double price = 1.5;
        Color color;
        Object any;

        Thing() {}

        Thing(String name, int n, Object any) {
            this.name = name;
            this.n = n;
            this.any = any;
            boxed = n % 2 == 0 ? null : (long) n;
            color = n % 3 == 0 ? null : Color.values()[n % 3];
        }
    }

    public static final class Special extends Thing {
        public String zone = "z";
        public long a = -5;
        public byte b = 1;
        public short s = -2;
        public char c = 'c';
        public boolean flag = true;
        public float f = 2.5f;
        public UUID id = new UUID(5, 6);

        Special() {}

        Special(String name, int n) {
            super(name, n, null);
        }
    }

    public static class Links {
        Thing first;
        Special second;
        Links next;
        BigDecimal amount = new BigDecimal("1.50");
        int[] numbers = {1, -2};
        String[] names = {"a", null, "bc"};
        Thing[] things = {new Special("in", 4), null};
        Special[] specials = {new Special("sp", 3), null};
        Shape shape = Shape.SQUARE;
        Map<String, Object> free = new HashMap<>();
    }

    public static class Lists {
        List<String> strings = new ArrayList<>();
        List<Long> longs;
        Set<UUID> ids = new LinkedHashSet<>();
        Collection<Thing> things = new LinkedList<>();
        List<Special> specials = new ArrayList<>();
        List raw = new ArrayList<>();
        List<Object> objects = new ArrayList<>();
        TreeSet<String> sorted = new TreeSet<>();
        Map<String, Long> counts = new HashMap<>();
        Map<Long, List<String>> nested = new TreeMap<>();
        List<List<Long>> deep = new ArrayList<>();
        Map<Color, Set<Special>> byColor = new LinkedHashMap<>();
        Map<String, byte[]> bytes = new HashMap<>();
    }

    public static class Listed extends ArrayList<String> {}

    public static class Box<T> {
        T content;
    }

    public static class Boxes {
        Box<String> box;
    }

    private KryoThings() {}

    private static Map<Object, Object> linked(Object... parts) {
        Map<Object, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < parts.length; i += 2) {
            map.put(parts[i], parts[i + 1]);
        }
        return map;
    }

    private static List<Object> list(Object... parts) {
        return new ArrayList<>(Arrays.asList(parts));
    }

    private static Lists lists(int n) {
        Lists lists = new Lists();
        lists.longs = n == 0 ? null : new ArrayList<>();
        for (int i = 0; i < n; i++) {
            lists.strings.add(i == 2 ? null : "text " + i);
            lists.longs.add(i == 1 ? null : i - 1L);
            lists.ids.add(new UUID(i, n));
            lists.things.add(i == 1 ? new Special("s" + i, i) : new Thing("t" + i, i, "any"));
            lists.specials.add(new Special("u" + i, i));
            lists.raw.add(i % 2 == 0 ? "raw" : 5L);
            lists.objects.add("object " + i);
            lists.sorted.add("sorted " + i);
            lists.counts.put("count " + i, i == 1 ? null : (long) i);
            lists.nested.put((long) i, new ArrayList<>(List.of("n" + i, "m")));
            lists.deep.add(new ArrayList<>(List.of(1L, 2L + i)));
            lists.byColor.put(Color.values()[i % 3], new HashSet<>(List.of(new Special("by", i))));
            lists.bytes.put("b" + i, new byte[] {1, (byte) i});
        }
        return lists;
    }

    static void examples() {
        TypeInformation<?> things = Types.MAP(S, Types.GENERIC(Thing.class));
        TypeInformation<?> objects = Types.MAP(S, Types.GENERIC(Object.class));
        Thing one = new Thing("one", 1, "any");
        Special special = new Special("special", 2);
        show("things", things, linked("a", one, "b", new Thing("two", 2, 5L), "c", special, "d", null, "e", new Thing(null, 3, null)));
        show("things twice", things, linked("a", one, "b", one, "c", special, "d", special));
        show("things as objects", objects, linked("a", one, "b", list(one, special), "c", special, "d", linked("x", one)));
        show("specials", Types.MAP(S, Types.GENERIC(Special.class)), linked("a", special, "b", new Special("b", 7), "c", special));
        show("things in lists", Types.MAP(S, Types.LIST(Types.GENERIC(Thing.class))), linked("a", list(one, special, one), "b", list(one)));
        show("things in tuples", Types.MAP(S, Types.GENERIC(Tuple2.class)), linked("a", Tuple2.of(one, "x"), "b", Tuple2.of(1L, one)));
        show("things of keys", things, linked("name", new Thing("name", 1, "other"), "other", new Thing("other", 2, one)));
        show("arrays of things", objects, linked("a", new Thing[] {one, null, special}, "b", new Special[] {special, null, new Special("q", 3)}));
        Links links = new Links();
        links.first = one;
        links.second = special;
        links.next = new Links();
        links.next.first = special;
        links.next.next = links;
        links.free.put("one", one);
        links.free.put("links", links);
        links.next.free = null;
        TypeInformation<?> linksType = Types.MAP(S, Types.GENERIC(Links.class));
        show("links", linksType, linked("a", links, "b", links.next, "c", new Links()));
        show("links and things", objects, linked("a", one, "b", links, "c", links.next, "d", links.free, "e", special));
        show("enums", Types.MAP(S, Types.GENERIC(Color.class)), linked("a", Color.RED, "b", Color.BLUE, "c", Color.RED));
        show("enums with bodies", Types.MAP(S, Types.GENERIC(Shape.class)), linked("a", Shape.ROUND, "b", Shape.SQUARE, "c", Shape.ROUND));
        show("enums by Flink", Types.MAP(S, Types.ENUM(Color.class)), linked("a", Color.RED, "b", Color.BLUE, "c", Color.RED, "d", null));
        show("enums with bodies by Flink", Types.MAP(S, Types.ENUM(Shape.class)), linked("a", Shape.SQUARE, "b", Shape.ROUND, "c", Shape.SQUARE));
        show("enums by Flink as keys", Types.MAP(Types.ENUM(Color.class), Types.LIST(Types.ENUM(Color.class))), linked(Color.RED, list(Color.RED, Color.BLUE)));
        show("enums in lists", objects, linked("a", list(Shape.ROUND, Shape.SQUARE), "b", list(Color.RED, null, Color.RED), "c", list(Shape.ROUND, Shape.ROUND)));
        show("enums as keys", Types.MAP(Types.GENERIC(Color.class), Types.LONG), linked(Color.RED, 1L, Color.BLUE, 2L));
        TypeInformation<?> lists = Types.MAP(S, Types.GENERIC(Lists.class));
        for (int n = 0; n < 5; n++) {
            show("lists of " + n, lists, linked("a", lists(n), "b", lists(n)));
        }
        Lists shared = lists(3);
        show("lists twice", lists, linked("a", shared, "b", shared));
        Lists sharing = lists(3);
        sharing.strings = shared.strings;
        sharing.counts = shared.counts;
        show("lists that share", lists, linked("a", shared, "b", sharing));
        Lists itself = lists(2);
        itself.raw = itself.strings;
        show("a list in two fields", lists, linked("a", itself));
        constants(lists, objects);
        show("a list of a field", objects, linked("a", shared, "b", shared.strings));
        show("a list class", objects, linked("a", new Listed()));
        Boxes boxes = new Boxes();
        boxes.box = new Box<>();
        boxes.box.content = "content";
        show("a class with a type parameter", objects, linked("a", boxes));
        show("registered things", objects, linked("a", one, "b", special, "c", Color.RED), Thing.class, Color.class);
        show("registered special", things, linked("a", one, "b", special), Special.class, Thing.class);
    }

    /** Of `emptyList` and `emptyMap` there is one object for all, whatever the type arguments of their fields are. */
    private static void constants(TypeInformation<?> lists, TypeInformation<?> objects) {
        Lists empty = lists(2);
        empty.strings = Collections.emptyList();
        empty.longs = Collections.emptyList();
        empty.things = Collections.emptyList();
        empty.objects = Collections.emptyList();
        empty.counts = Collections.emptyMap();
        empty.nested = Collections.emptyMap();
        empty.ids = Collections.emptySet();
        Lists single = lists(3);
        single.strings = Collections.singletonList("only");
        single.raw = single.strings;
        single.deep = Collections.emptyList();
        single.ids = Collections.singleton(new UUID(7, 8));
        single.counts = Collections.singletonMap("one", 1L);
        Lists same = lists(1);
        same.strings = single.strings;
        same.longs = empty.longs;
        same.ids = single.ids;
        same.counts = single.counts;
        show("lists of constants", lists, linked("a", empty, "b", single, "c", same, "d", lists(3), "e", empty));
        show("constants in objects", objects, linked("a", list(single.strings, empty.longs), "b", empty, "c", empty.counts, "d", same, "e", lists(2)));
        Lists texts = lists(1);
        texts.strings = Arrays.asList("x", null);
        Lists again = lists(2);
        again.strings = texts.strings;
        show("lists of asList", lists, linked("a", texts, "b", again, "c", lists(2)));
    }

    private static void show(String name, TypeInformation<?> type, Object map, Class<?>... registered) {
        KryoValues.show(name, HashMap.class, type, map, registered);
    }
}
