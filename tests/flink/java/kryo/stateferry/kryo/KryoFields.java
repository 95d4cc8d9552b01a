package stateferry.kryo;

import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;

/**
 * Objects that Flink's KryoSerializer writes as a whole, with a map in the field {@code counts}.
 *
 * <p>Prints a line of JSON for each: a name, the serializer's snapshot, the bytes of the object, those of the same object
 * with null in the field, and the bytes that Flink's MapSerializer writes of the map, with its snapshot.
 */
public final class KryoFields {
    private static final HexFormat HEX = HexFormat.of();
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static final TypeInformation<?> S = Types.STRING;

    public enum Color { RED, GREEN }

    public static class Part {
        public String text;
        public long n;

        public Part() {}

        Part(String text, long n) {
            this.text = text;
            this.n = n;
        }
    }

    /** Its map has the type arguments of a declaration, and its fields have none. */
    public static class Totals {
        private static int made;
        private transient int cache = 5;
        public Instant begun = Instant.ofEpochSecond(1700000000, 5);
        public Map<String, Long> counts = new HashMap<>();
        public String name = "name";
        public Object other;
        public Part part;
        public double rate = 14.3;
        public long total = 77;
    }

    /** A subclass with fields before and behind the map. */
    public static class ShopTotals extends Totals {
        public String at = "here";
        public List<String> visitors = new ArrayList<>(List.of("a", "bcd"));
        public Map<String, Long> zeros = new LinkedHashMap<>();
    }

    /** Its maps have no type arguments. */
    @SuppressWarnings("rawtypes")
    public static class RawTotals {
        public Map before;
        public Map counts;
        public Object later;
        public Object latest;
    }

    public static class TypedTotals {
        public int a = 1;
        public HashMap<String, List<Long>> counts = new HashMap<>();
        public List<Color> colors = new ArrayList<>();
        public TreeMap<String, Part> parts = new TreeMap<>();
    }

    public static class ObjectTotals {
        public Map<String, Object> counts = new LinkedHashMap<>();
        public UUID id = new UUID(1, 2);
    }

    public static class Box<T> {
        public T of;
        public List<T> all = new ArrayList<>();

        Box() {}

        @SafeVarargs
        Box(T of, T... more) {
            this.of = of;
            all.addAll(Arrays.asList(more));
        }
    }

    /** The type arguments of its maps have some, too. */
    public static class BoxTotals {
        public String at = "at";
        public LinkedHashMap<String, Box<Long>> counts = new LinkedHashMap<>();
        public Box<String> text = new Box<>("text", "more");
    }

    public static class TupleTotals {
        public LinkedHashMap<String, Tuple2<String, Long>> counts = new LinkedHashMap<>();
        public Tuple3<String, Long, Long> three = Tuple3.of("three", 3L, null);
    }

    private KryoFields() {}

    private static Map<Object, Object> linked(Object... parts) {
        Map<Object, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < parts.length; i += 2) {
            map.put(parts[i], parts[i + 1]);
        }
        return map;
    }

    @SuppressWarnings({"rawtypes", "unchecked"})
    private static <T extends Totals> T totals(T made, Map<?, ?> counts, Object other) {
        made.counts = (Map) counts;
        made.other = other;
        return made;
    }

    private static RawTotals raw(Map<?, ?> before, Map<?, ?> counts, Object later, Object latest) {
        RawTotals made = new RawTotals();
        made.before = before;
        made.counts = counts;
        made.later = later;
        made.latest = latest;
        return made;
    }

    public static void main(String[] arguments) {
        TypeInformation<?> longs = Types.MAP(S, Types.LONG);
        Map<Object, Object> shared = linked("a", 1L, "b", 2L);
        Map<Object, Object> abc = new HashMap<>(linked("a", 1L, "bcd", -2L, "\u00fc", null));
        show("totals", Totals.class, longs, totals(new Totals(), abc, null));
        show("totals with an object", Totals.class, longs, totals(new Totals(), abc, 5));
        show("no map", Totals.class, longs, totals(new Totals(), null, "x"));
        show("an empty map", Totals.class, longs, totals(new Totals(), new HashMap<>(), "x"));
        show("a map by name", Totals.class, longs, totals(new Totals(), linked("a", 1L), linked("a", 2L)));
        show("a null key", Totals.class, longs, totals(new Totals(), new HashMap<>(linked(null, 1L, "b", 2L)), null));
        show("registered", Totals.class, longs, totals(new Totals(), linked("a", 1L), linked("a", 2L)), Part.class, LinkedHashMap.class, Totals.class);
        Totals named = totals(new Totals(), linked("name that is long", 1L), null);
        named.name = (String) named.counts.keySet().iterator().next();
        named.other = named.name;
        show("a name that is a key", Totals.class, longs, named);
        Totals itself = totals(new Totals(), abc, null);
        itself.other = itself;
        show("itself", Totals.class, longs, itself);
        Totals withPart = totals(new Totals(), abc, null);
        withPart.part = new Part("part", 5);
        withPart.other = withPart.part;
        show("a part twice", Totals.class, longs, withPart);
        show("a subclass", Totals.class, longs, totals(new ShopTotals(), abc, "x"));
        ShopTotals shop = totals(new ShopTotals(), linked("a", 1L), "x");
        shop.zeros = new LinkedHashMap<>(Map.of("z", 26L));
        show("a subclass with two maps", Totals.class, longs, shop);
        ShopTotals twice = totals(new ShopTotals(), linked("a", 1L), "x");
        twice.zeros = twice.counts;
        show("a map in two fields with type arguments", Totals.class, longs, twice);
        show("a map in a field without type arguments", Totals.class, longs, totals(new Totals(), shared, shared));
        show("declared as Object", Object.class, longs, totals(new Totals(), abc, null));
        show("raw", RawTotals.class, longs, raw(null, abc, null, null));
        show("raw in order", RawTotals.class, longs, raw(linked("x", "y"), linked("a", 1L), linked("z", "y"), "a"));
        show("one map before", RawTotals.class, longs, raw(shared, shared, null, null));
        show("one map behind", RawTotals.class, longs, raw(null, shared, shared, shared));
        show("one map everywhere", RawTotals.class, longs, raw(shared, shared, shared, linked("m", shared)));
        Part part = new Part("part that is shared", 9);
        TypeInformation<?> parts = Types.MAP(S, Types.GENERIC(Part.class));
        Map<Object, Object> ofParts = linked("a", part, "b", new Part(part.text, 1), "c", part, "d", null);
        show("parts", RawTotals.class, parts, raw(null, ofParts, part, linked("p", part)));
        show("parts before", RawTotals.class, parts, raw(linked("p", part), ofParts, part, new Part(part.text, 2)));
        show("a text in a part", RawTotals.class, parts, raw(null, ofParts, part.text, part));
        show("pojos", RawTotals.class, Types.MAP(S, TypeInformation.of(Part.class)), raw(linked("p", part), ofParts, part, ofParts));
        TypeInformation<?> lists = Types.MAP(S, Types.LIST(Types.LONG));
        TypedTotals typed = new TypedTotals();
        show("typed and empty", TypedTotals.class, lists, new TypedTotals());
        typed.counts.put("a", new ArrayList<>(List.of(1L, 2L)));
        typed.counts.put("b", new ArrayList<>(Arrays.asList(3L)));
        typed.colors.add(Color.GREEN);
        typed.parts.put("p", part);
        show("typed", TypedTotals.class, lists, typed);
        TypedTotals kept = new TypedTotals();
        kept.counts.put("a", new ArrayList<>(List.of(1L, 2L)));
        kept.counts.put("b", new ArrayList<>(Arrays.asList(3L, null)));
        kept.counts.put("c", new ArrayList<>(Arrays.asList((Long) null)));
        kept.counts.put("d", new ArrayList<>());
        show("typed and kept", TypedTotals.class, Types.MAP(S, Types.GENERIC(ArrayList.class)), kept);
        ObjectTotals objects = new ObjectTotals();
        objects.counts.put("a", 1L);
        objects.counts.put("b", null);
        show("objects", ObjectTotals.class, longs, objects);
        BoxTotals boxes = new BoxTotals();
        boxes.counts.put("a", new Box<>(1L, 2L, null));
        boxes.counts.put("b", new Box<>(null));
        show("boxes", BoxTotals.class, Types.MAP(S, Types.GENERIC(Box.class)), boxes);
        TupleTotals tuples = new TupleTotals();
        tuples.counts.put("a", Tuple2.of("a", 5L));
        tuples.counts.put("b", Tuple2.of("bcd", -6L));
        show("tuples", TupleTotals.class, Types.MAP(S, Types.TUPLE(S, Types.LONG)), tuples);
        tuples = new TupleTotals();
        tuples.counts.put("a", Tuple2.of("a", null));
        tuples.counts.put("b", Tuple2.of(null, -6L));
        tuples.counts.put("c", null);
        show("tuples by Kryo", TupleTotals.class, Types.MAP(S, Types.GENERIC(Tuple2.class)), tuples);
        Map<Object, Object> many = new LinkedHashMap<>();
        for (int i = 0; i < 300; i++) {
            many.put("key " + i, new Part("text " + i / 2, i));
        }
        show("many", RawTotals.class, parts, raw(null, many, many.get("key 7"), many.get("key 200")));
    }

    private static Map<?, ?> mapOf(Object value, boolean remove) throws Exception {
        Field field = null;
        for (Class<?> one = value.getClass(); field == null; one = one.getSuperclass()) {
            for (Field candidate : one.getDeclaredFields()) {
                field = candidate.getName().equals("counts") ? candidate : field;
            }
        }
        Map<?, ?> map = (Map<?, ?>) field.get(value);
        if (remove) {
            field.set(value, null);
        }
        return map;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void show(String name, Class<?> declared, TypeInformation<?> type, Object value, Class<?>... registered) {
        SerializerConfigImpl config = new SerializerConfigImpl();
        for (Class<?> one : registered) {
            config.registerKryoType(one);
        }
        StringBuilder line = new StringBuilder("{\"name\": \"" + name + "\"");
        try {
            KryoSerializer kryo = new KryoSerializer(declared, config);
            byte[] bytes = written(kryo, value);
            TypeSerializer own = type.createSerializer(config);
            Map<?, ?> map = mapOf(value, false);
            add(line, "snapshot", snapshot(kryo));
            add(line, "bytes", bytes);
            add(line, "flink_snapshot", snapshot(own));
            add(line, "flink", map == null ? new byte[4] : written(own, map));
            mapOf(value, true);
            add(line, "rest", written(kryo, value));
            Object back = kryo.deserialize(new DataInputDeserializer(bytes));
            Map<?, ?> again = mapOf(back, true);
            add(line, "flink_again", again == null ? new byte[4] : written(own, again));
            add(line, "rest_again", written(kryo, back));
        } catch (Throwable failure) {
            line.append(", \"refused\": \"").append(failure.toString().lines().findFirst().orElse("").replaceAll("[^ -~]", "?").replace('"', '\'')).append('"');
        }
        OUT.println(line.append('}'));
    }

    private static void add(StringBuilder line, String name, byte[] bytes) {
        line.append(", \"").append(name).append("\": \"").append(HEX.formatHex(bytes)).append('"');
    }

    private static byte[] written(TypeSerializer<Object> serializer, Object value) throws Exception {
        DataOutputSerializer output = new DataOutputSerializer(64);
        serializer.serialize(value, output);
        return output.getCopyOfBuffer();
    }

    private static byte[] snapshot(TypeSerializer<?> serializer) throws Exception {
        DataOutputSerializer output = new DataOutputSerializer(64);
        TypeSerializerSnapshot.writeVersionedSnapshot(output, serializer.snapshotConfiguration());
        return output.getCopyOfBuffer();
    }
}
