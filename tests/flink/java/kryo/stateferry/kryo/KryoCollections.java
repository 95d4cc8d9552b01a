package stateferry.kryo;

import static stateferry.kryo.KryoFlinkTypes.linked;
import static stateferry.kryo.KryoFlinkTypes.list;

import java.time.temporal.ChronoUnit;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.EnumMap;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CopyOnWriteArraySet;
import java.util.concurrent.LinkedBlockingDeque;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.LinkedTransferQueue;
import java.util.concurrent.PriorityBlockingQueue;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import stateferry.kryo.KryoThings.Color;

/** Maps by Kryo of less usual classes of the JDK, and with such in them. */
final class KryoCollections {
    private static final TypeInformation<?> S = Types.STRING;
    private static final TypeInformation<?> L = Types.LONG;

    private KryoCollections() {}

    /** Those that Flink's own serializers write. Kryo can't read most of them. */
    static void maps() {
        TreeMap<Object, Object> sorted = new TreeMap<>(linked("a", 1L, "b", 2L, "c", null, "d", 4L));
        ConcurrentSkipListMap<Object, Object> skipping = new ConcurrentSkipListMap<>(linked("a", 1L, "b", 2L, "c", 3L));
        Map<String, Map<?, ?>> maps = new LinkedHashMap<>();
        maps.put("unmodifiableSortedMap", Collections.unmodifiableSortedMap(sorted));
        maps.put("unmodifiableNavigableMap", Collections.unmodifiableNavigableMap(sorted));
        maps.put("synchronizedSortedMap", Collections.synchronizedSortedMap(sorted));
        maps.put("synchronizedNavigableMap", Collections.synchronizedNavigableMap(sorted));
        maps.put("checkedMap", Collections.checkedMap(new HashMap<>(sorted), Object.class, Object.class));
        maps.put("checkedSortedMap", Collections.checkedSortedMap(sorted, Object.class, Object.class));
        maps.put("checkedNavigableMap", Collections.checkedNavigableMap(sorted, Object.class, Object.class));
        maps.put("headMap", sorted.headMap("c"));
        maps.put("descendingMap", sorted.descendingMap());
        maps.put("subMap of ConcurrentSkipListMap", skipping.subMap("a", "c"));
        maps.put("emptySortedMap", Collections.emptySortedMap());
        maps.forEach((name, map) -> {
            show(name + " as Map", Map.class, Types.MAP(S, L), map);
            show(name + " as its class", map.getClass(), Types.MAP(S, L), map);
            show(name + " in maps", HashMap.class, Types.MAP(S, Types.MAP(S, L)), linked("k", map, "l", new HashMap<>(sorted)));
        });
        Map<Object, Object> identical = new IdentityHashMap<>(linked("a", 1L, "b", null));
        show("IdentityHashMap of two", IdentityHashMap.class, Types.MAP(S, L), identical);
        show("IdentityHashMap in maps", HashMap.class, Types.MAP(S, Types.MAP(S, L)), linked("k", identical));
        Map<Color, Long> colors = new EnumMap<>(Map.of(Color.RED, 1L, Color.BLUE, 2L));
        colors.put(Color.GREEN, null);
        TypeInformation<?> byColor = Types.MAP(Types.ENUM(Color.class), L);
        show("EnumMap of Color as Map", Map.class, byColor, colors);
        show("EnumMap of Color as its class", EnumMap.class, byColor, colors);
        show("EnumMap of nothing", EnumMap.class, byColor, new EnumMap<>(Color.class));
        show("EnumMap of Color in maps", HashMap.class, Types.MAP(S, byColor), linked("k", colors, "l", new EnumMap<>(Color.class), "m", colors, "n", linked(Color.BLUE, 5L)));
        TypeInformation<?> lists = Types.MAP(S, Types.LIST(S));
        String text = new String("said again");
        List<Object> some = list("a", text, "b");
        show("checkedList", HashMap.class, lists, linked("k", Collections.checkedList(some, Object.class), "l", Collections.checkedList(new LinkedList<>(some), Object.class)));
        show("nCopies", HashMap.class, lists, linked("k", Collections.nCopies(3, text), "l", Collections.nCopies(0, "b")));
        show("subList of other lists", HashMap.class, lists, linked("k", new LinkedList<>(some).subList(0, 2), "l", Arrays.asList("x", text, "y").subList(1, 3)));
    }

    /** Those that Flink writes by Kryo. */
    static void kept() {
        String text = new String("said again");
        UUID id = new UUID(5, 6);
        Map<String, Collection<Object>> collections = new LinkedHashMap<>();
        collections.put("CopyOnWriteArraySet", new CopyOnWriteArraySet<>(list(text, id, 5L)));
        collections.put("ConcurrentSkipListSet", new ConcurrentSkipListSet<>(list("b", text)));
        collections.put("ConcurrentLinkedQueue", new ConcurrentLinkedQueue<>(list(text, id)));
        collections.put("ConcurrentLinkedDeque", new ConcurrentLinkedDeque<>(list(text, "b", text)));
        collections.put("LinkedBlockingQueue", new LinkedBlockingQueue<>(list(text)));
        collections.put("LinkedBlockingDeque", new LinkedBlockingDeque<>(list(7L, 8L)));
        collections.put("LinkedTransferQueue", new LinkedTransferQueue<>(list()));
        collections.put("PriorityBlockingQueue", new PriorityBlockingQueue<>(list(text, "a")));
        collections.put("empty Set", Collections.emptySet());
        collections.put("single Set", Collections.singleton(text));
        collections.put("single Set of null", Collections.singleton(null));
        TypeInformation<?> objects = Types.MAP(S, Types.GENERIC(Object.class));
        collections.forEach((name, one) -> {
            kept(name, Types.MAP(S, Types.GENERIC(one.getClass())), linked("a", one, text, one));
            kept(name + " as Object", objects, linked("a", list(text, one), "b", one, "c", list(one, one), text, linked("x", one)));
        });
        kept("emptySet as Set", Types.MAP(S, Types.GENERIC(Set.class)), linked("a", Collections.emptySet(), "b", Collections.singleton(text), text, Collections.emptySet()));
        EnumSet<ChronoUnit> units = EnumSet.range(ChronoUnit.SECONDS, ChronoUnit.DAYS);
        EnumSet<Color> colors = EnumSet.of(Color.GREEN, Color.BLUE);
        TypeInformation<?> sets = Types.MAP(S, Types.GENERIC(EnumSet.class));
        kept("EnumSet of many", sets, linked("a", colors, text, EnumSet.noneOf(Color.class), "b", colors, "c", null, "d", EnumSet.allOf(Color.class)));
        kept("EnumSet of the JDK", sets, linked("a", units, text, units, "b", EnumSet.noneOf(ChronoUnit.class)));
        kept("EnumSet in others", objects, linked("a", list(text, colors, Color.BLUE), "b", colors, "c", list(colors, colors), text, linked("x", units), "d", Color.GREEN, "e", linked(colors, units)));
        kept("registered EnumSet", sets, linked("a", colors, "b", colors), EnumSet.class, Color.class);
        Map<Object, Object> identical = new IdentityHashMap<>(linked(text, id));
        kept("IdentityHashMap", Types.MAP(S, Types.GENERIC(IdentityHashMap.class)), linked("a", identical, text, identical));
    }

    private static void show(String name, Class<?> declared, TypeInformation<?> type, Object map) {
        KryoExamples.show(name, declared, type, map);
    }

    private static void kept(String name, TypeInformation<?> type, Object map, Class<?>... registered) {
        KryoValues.show(name, HashMap.class, type, map, registered);
    }
}
