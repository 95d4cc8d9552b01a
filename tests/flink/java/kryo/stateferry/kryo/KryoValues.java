package stateferry.kryo;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.DayOfWeek;
import java.time.Duration;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.MonthDay;
import java.time.OffsetDateTime;
import java.time.OffsetTime;
import java.time.Period;
import java.time.Year;
import java.time.YearMonth;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Collection;
import java.util.Collections;
import java.util.Currency;
import java.util.Date;
import java.util.EnumMap;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.LinkedList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.PriorityQueue;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Pattern;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;

/**
 * Maps by Flink's KryoSerializer whose values (or keys) Flink itself writes by Kryo too.
 *
 * <p>{@code examples} prints a line of JSON for each: a name, the serializer's snapshot, the bytes; the snapshot and the
 * bytes of Flink's MapSerializer. {@code judge} reads lines of four hexadecimal words, a snapshot, bytes, and the same
 * for a MapSerializer, and says of each whether Flink reads the same map of both.
 */
public final class KryoValues {
    private static final HexFormat HEX = HexFormat.of();
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static final TypeInformation<?> S = Types.STRING;

    enum Color { RED, GREEN, BLUE }

    enum Shape {
        ROUND { @Override int corners() { return 0; } },
        SQUARE { @Override int corners() { return 4; } };

        abstract int corners();
    }

    private KryoValues() {}

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("judge")) {
            judge();
        } else if (arguments[0].equals("pojos")) {
            KryoPojos.examples();
        } else {
            scalars();
            enums();
            collections();
            references();
            registrations();
            nested();
            KryoThings.examples();
            KryoFlinkTypes.kept();
            KryoCollections.kept();
            KryoTypeArguments.kept();
        }
    }

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

    private static TypeInformation<?> generic(Class<?> one) {
        return Types.GENERIC(one);
    }

    private static void all(String name, Class<?> declared, Object... values) {
        Map<Object, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < values.length; i++) {
            map.put("v" + i, values[i]);
        }
        TypeInformation<?> type = generic(declared);
        show(name, HashMap.class, Types.MAP(S, type), map);
        show(name + " in a Map", Map.class, Types.MAP(S, type), map);
        show(name + " as Object", HashMap.class, Types.MAP(S, generic(Object.class)), map);
        show(name + " in lists", HashMap.class, Types.MAP(S, Types.LIST(type)), linked("k", list(values), "l", list(values[0])));
        show(name + " in lists by Kryo", HashMap.class, Types.MAP(S, generic(ArrayList.class)), linked("k", list(values), "l", list(null, values[0])));
        show(name + " with null", HashMap.class, Types.MAP(S, type), linked("a", null, "b", values[0], "c", null, "d", values[0]));
        Map<Object, Object> keys = new LinkedHashMap<>();
        for (Object value : values) {
            keys.put(value, value);
        }
        show(name + " as keys", HashMap.class, Types.MAP(type, type), keys);
    }

    private static void scalars() throws Exception {
        all("UUID", UUID.class, new UUID(1, 2), new UUID(0, 0), new UUID(-1, Long.MIN_VALUE), new UUID(1L << 62, -(1L << 50)), UUID.fromString("6e8bc430-9c3a-11d9-9669-0800200c9a66"));
        all("BitSet", BitSet.class, new BitSet(), BitSet.valueOf(new long[] {5, -1L}), BitSet.valueOf(new long[] {0, 0, 1}));
        all("URI", URI.class, URI.create("http://example.org/a?b=c"), URI.create("x"), URI.create("http://example.org/\u00fc"));
        all("Locale", Locale.class, Locale.ENGLISH, Locale.GERMANY, Locale.ROOT, new Locale("es", "ES", "\u00fcber"));
        all("Pattern", Pattern.class, Pattern.compile("a.*"), Pattern.compile("\u00fc", Pattern.CASE_INSENSITIVE));
        all("Duration", Duration.class, Duration.ZERO, Duration.ofSeconds(5, 7), Duration.ofSeconds(-5), Duration.ofSeconds(Long.MAX_VALUE));
        all("Period", Period.class, Period.ZERO, Period.of(1, -2, 300));
        all("Year", Year.class, Year.of(2024), Year.of(-5));
        all("YearMonth", YearMonth.class, YearMonth.of(2024, 2), YearMonth.of(-5, 12));
        all("MonthDay", MonthDay.class, MonthDay.of(2, 29));
        all("ZoneOffset", ZoneOffset.class, ZoneOffset.UTC, ZoneOffset.ofHours(-2), ZoneOffset.ofHoursMinutesSeconds(1, 2, 3), ZoneOffset.MAX);
        all("ZoneId", ZoneId.class, ZoneId.of("Europe/Berlin"), ZoneOffset.UTC);
        all("OffsetTime", OffsetTime.class, OffsetTime.of(LocalTime.of(1, 2), ZoneOffset.UTC), OffsetTime.of(LocalTime.MAX, ZoneOffset.ofHours(1)));
        all("OffsetDateTime", OffsetDateTime.class, OffsetDateTime.of(LocalDateTime.of(2024, 1, 2, 3, 4), ZoneOffset.ofHours(1)));
        all("ZonedDateTime", ZonedDateTime.class, ZonedDateTime.of(LocalDateTime.of(2024, 1, 2, 3, 4, 5, 6), ZoneId.of("Europe/Berlin")), ZonedDateTime.of(LocalDateTime.MIN, ZoneOffset.UTC));
        all("LocalDateTime", LocalDateTime.class, LocalDateTime.of(2024, 1, 2, 3, 4, 5, 6), LocalDateTime.MIN);
        all("Optional", Optional.class, Optional.empty(), Optional.of("a"), Optional.of(5L));
        all("AtomicLong", AtomicLong.class, new AtomicLong(5), new AtomicLong(-1));
        all("AtomicInteger", AtomicInteger.class, new AtomicInteger(5), new AtomicInteger(-1));
        all("Currency", Currency.class, Currency.getInstance("EUR"));
        all("Class", Class.class, String.class, int.class, UUID.class);
        all("Object[]", Object[].class, new Object[] {"x", 1L, null}, new Object[0]);
        all("UUID[]", UUID[].class, new UUID[] {new UUID(1, 2), null}, new UUID[0]);
        all("long[][]", long[][].class, new long[][] {{1}, {2, 3}}, new long[0][]);
        all("Long", Long.class, 5L, -1L, Long.MAX_VALUE);
        all("Double", Double.class, 14.3, -0.0);
        all("String", String.class, "a", "", "abc", "\u00fc");
        all("Number", Number.class, 5L, 7, 1.5, (short) 3, (byte) 4, 2.5f);
        all("Date", Date.class, new Date(0), new Date(1_700_000_000_123L));
        all("mixed", Object.class, 5L, "abc", true, 'x', list("a", 1L), linked("a", new UUID(3, 4)), new HashSet<>(list(5, "b")), LocalDate.EPOCH);
    }

    private static void enums() {
        all("Color", Color.class, Color.RED, Color.BLUE, Color.GREEN);
        all("Shape", Shape.class, Shape.ROUND, Shape.SQUARE);
        all("TimeUnit", TimeUnit.class, TimeUnit.DAYS, TimeUnit.NANOSECONDS);
        all("DayOfWeek", DayOfWeek.class, DayOfWeek.MONDAY, DayOfWeek.SUNDAY);
        all("EnumMap", EnumMap.class, new EnumMap<>(Map.of(Color.RED, 1L)), new EnumMap<>(Color.class));
        all("EnumSet", EnumSet.class, EnumSet.of(Color.RED, Color.BLUE), EnumSet.noneOf(Color.class));
    }

    private static void collections() {
        Object[][] contents = {
            {}, {"a"}, {"a", "bc", "\u00fc"}, {1L, 2L}, {new UUID(1, 2), new UUID(3, 4)}, {Color.RED, Color.GREEN}, {5}, {LocalDate.EPOCH}
        };
        for (Object[] one : contents) {
            String name = " of " + (one.length == 0 ? "nothing" : one[0].getClass().getSimpleName());
            Collection<Object> list = list(one);
            all("HashSet" + name, HashSet.class, new HashSet<>(list), new HashSet<>(list));
            all("LinkedHashSet" + name, LinkedHashSet.class, new LinkedHashSet<>(list), new LinkedHashSet<>(list));
            all("TreeSet" + name, TreeSet.class, new TreeSet<>(list), new TreeSet<>(list));
            all("Set" + name, Set.class, new HashSet<>(list), new LinkedHashSet<>(list), new TreeSet<>(list));
            all("ArrayDeque" + name, ArrayDeque.class, new ArrayDeque<>(list));
            all("PriorityQueue" + name, PriorityQueue.class, new PriorityQueue<>(list));
            all("ArrayList" + name, ArrayList.class, new ArrayList<>(list), new ArrayList<>(list));
            all("LinkedList" + name, LinkedList.class, new LinkedList<>(list));
            all("Set.copyOf" + name, Set.class, Set.copyOf(list));
            all("unmodifiableSet" + name, Set.class, Collections.unmodifiableSet(new HashSet<>(list)));
            all("asList" + name, List.class, Arrays.asList(one), List.copyOf(list));
            if (one.length > 0) {
                all("HashMap" + name, HashMap.class, new HashMap<>(linked(one[0], "x")), new HashMap<>(linked("y", one[0])));
                all("TreeMap" + name, TreeMap.class, new TreeMap<>(linked(one[0], "x")));
            }
        }
        TreeSet<Object> reverse = new TreeSet<>(Collections.reverseOrder());
        reverse.addAll(list("a", "b"));
        all("TreeSet reverse", TreeSet.class, reverse);
        TreeSet<Object> natural = new TreeSet<>((java.util.Comparator) java.util.Comparator.naturalOrder());
        natural.addAll(list("a", "b"));
        all("TreeSet natural", TreeSet.class, natural, natural);
        all("HashSet with null", HashSet.class, new HashSet<>(list("a", null)), new HashSet<>(list(null, 5L, 6L)));
        all("emptySet", Set.class, Collections.emptySet(), Collections.singleton("a"), Collections.singleton(null));
        all("HashMap of lists", HashMap.class, new HashMap<>(linked("a", list("x", "yy"), "b", list(1L, null), 7, null)));
    }

    private static void references() {
        TypeInformation<?> uuids = Types.MAP(S, generic(UUID.class));
        UUID id = new UUID(7, 8);
        show("one UUID under two keys", HashMap.class, uuids, linked("a", id, "b", new UUID(1, 2), "c", id));
        show("one UUID in two lists", HashMap.class, Types.MAP(S, Types.LIST(generic(UUID.class))), linked("a", list(id, id), "b", list(id, id)));
        HashSet<Object> shared = new LinkedHashSet<>(list("abcd", "efgh", id));
        TypeInformation<?> sets = Types.MAP(S, generic(HashSet.class));
        show("one set under two keys", HashMap.class, sets, linked("a", shared, "b", new HashSet<>(list(id, "abcd")), "c", shared));
        String text = "a key that is said again";
        show("a value that refers to its key", HashMap.class, sets, linked(text, new LinkedHashSet<>(list(text, "x")), "b", new LinkedHashSet<>(list("y", text))));
        show("a key that a value has said", HashMap.class, sets, linked("b", new LinkedHashSet<>(list("y", text)), text, new LinkedHashSet<>(list("z", text, id))));
        List<Object> inner = list("one", text, id);
        List<Object> outer = list(inner, inner, text, Color.RED, Color.RED);
        show("a list in lists", HashMap.class, Types.MAP(S, generic(ArrayList.class)), linked("a", inner, "b", outer, "c", outer, "d", list(outer, inner)));
        show("a list in maps", HashMap.class, Types.MAP(S, generic(Object.class)), linked("a", inner, "b", linked("x", outer, "y", outer), "c", outer, text, inner));
        show("enums and sets by name", Map.class, Types.MAP(S, generic(Object.class)), linked("a", Color.RED, "b", new LinkedHashSet<>(list(Color.BLUE)), "c", list(Shape.ROUND, Color.RED), "d", Shape.ROUND));
        List<Object> cycle = list("a");
        cycle.add(cycle);
        show("a list in itself", HashMap.class, Types.MAP(S, generic(ArrayList.class)), linked("a", list(), "b", cycle));
        show("a list in itself twice", HashMap.class, Types.MAP(S, generic(ArrayList.class)), linked("a", cycle, "b", cycle));
        Map<Object, Object> many = new LinkedHashMap<>();
        for (int i = 0; i < 300; i++) {
            many.put("key-" + i, i % 3 == 0 ? shared : new LinkedHashSet<>(list("key-" + i / 2, "other-" + i, shared)));
        }
        show("many references", HashMap.class, sets, many);
        LocalDateTime moment = LocalDateTime.of(2024, 1, 2, 3, 4);
        LocalDateTime sameDay = LocalDateTime.of(moment.toLocalDate(), LocalTime.of(5, 6));
        show("dates in two moments", HashMap.class, Types.MAP(S, generic(Object.class)), linked("a", moment, "b", sameDay, "c", moment.toLocalDate(), "d", list(moment, sameDay)));
        show("dates by Flink in two moments", HashMap.class, Types.MAP(Types.LOCAL_DATE, generic(Object.class)), linked(moment.toLocalDate(), moment, LocalDate.EPOCH, list(sameDay, moment.toLocalDate())));
    }

    private static void registrations() {
        Map<Object, Object> map = linked("a", new UUID(1, 2), "b", Color.RED, "c", new HashSet<>(list(Color.RED, 5L)), "d", linked("x", Color.BLUE));
        TypeInformation<?> objects = Types.MAP(S, generic(Object.class));
        show("nothing registered", HashMap.class, objects, map);
        show("registered Color", HashMap.class, objects, map, Color.class);
        show("registered all", HashMap.class, objects, map, HashSet.class, UUID.class, LinkedHashMap.class, Color.class, HashMap.class);
        TypeInformation<?> colors = Types.MAP(S, generic(Color.class));
        Map<Object, Object> colored = linked("a", Color.RED, "b", Color.GREEN, "c", Color.RED);
        show("registered before Color", HashMap.class, colors, colored, HashSet.class, Color.class);
        show("registered behind Color", HashMap.class, colors, colored, Color.class, HashSet.class);
        show("registered HashSet", HashMap.class, Types.MAP(S, generic(HashSet.class)), linked("a", new HashSet<>(list(Color.RED)), "b", new HashSet<>(list(Color.BLUE, Color.RED))), TreeSet.class, HashSet.class, Color.class);
    }

    private static void nested() {
        show("maps of maps of UUID", HashMap.class, Types.MAP(S, Types.MAP(generic(UUID.class), generic(UUID.class))), linked("a", linked(new UUID(1, 2), new UUID(3, 4)), "b", linked(new UUID(1, 2), null)));
        show("singletonMap of UUID", Map.class, Types.MAP(S, generic(UUID.class)), Collections.singletonMap("a", new UUID(1, 2)));
        show("TreeMap of UUID", TreeMap.class, Types.MAP(S, generic(UUID.class)), new TreeMap<>(Map.of("a", new UUID(1, 2), "b", new UUID(3, 4))));
        show("Map.of UUID", Map.class, Types.MAP(S, generic(UUID.class)), Map.of("a", new UUID(1, 2), "b", new UUID(3, 4)));
        show("Object[] of all", HashMap.class, Types.MAP(S, generic(Object[].class)), linked("a", new Object[] {new UUID(1, 2), Color.RED, new Long[] {1L, null}, new String[] {"a", null}, new int[] {5}}));
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static void show(String name, Class<?> declared, TypeInformation<?> type, Object value, Class<?>... registered) {
        SerializerConfigImpl config = new SerializerConfigImpl();
        for (Class<?> one : registered) {
            config.registerKryoType(one);
        }
        StringBuilder line = new StringBuilder("{\"name\": \"" + name + "\"");
        try {
            KryoSerializer kryo = new KryoSerializer(declared, config);
            byte[] bytes = written(kryo, value);
            line.append(", \"snapshot\": \"").append(snapshot(kryo)).append('"');
            line.append(", \"bytes\": \"").append(HEX.formatHex(bytes)).append('"');
            TypeSerializer own = type.createSerializer(config);
            line.append(", \"flink_snapshot\": \"").append(snapshot(own)).append('"');
            // What Flink writes of the map that it reads: the order of a HashSet can be another then.
            Object back = kryo.deserialize(new DataInputDeserializer(bytes));
            String made = HEX.formatHex(written(own, value));
            String again = HEX.formatHex(written(own, back));
            line.append(", \"flink\": \"").append(made).append("\", \"again\": \"").append(again).append('"');
        } catch (Throwable failure) {
            line.append(", \"refused\": \"").append(text(failure)).append('"');
        }
        OUT.println(line.append('}'));
    }

    private static String text(Throwable failure) {
        String text = failure.toString().lines().findFirst().orElse("");
        return text.replaceAll("[^ -~]", "?").replace("\\", "/").replace("\"", "'");
    }

    private static void judge() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            // Kryo 2 writes an object in a list by the type arguments of the last one of its class in a field.
            TypeSerializer<Object> kryo = restored(words[0]);
            TypeSerializer<Object> own = restored(words[2]);
            List<String> expected;
            try {
                DataInputDeserializer input = new DataInputDeserializer(HEX.parseHex(words[1]));
                expected = entries(restored(words[2]), kryo.deserialize(input));
                if (input.available() > 0) {
                    OUT.println("refused: " + input.available() + " bytes are left");
                    continue;
                }
            } catch (Throwable failure) {
                OUT.println("refused: " + text(failure));
                continue;
            }
            try {
                DataInputDeserializer input = new DataInputDeserializer(HEX.parseHex(words[3]));
                List<String> made = entries(restored(words[2]), own.deserialize(input));
                boolean equal = expected.equals(made) && input.available() == 0;
                OUT.println(equal ? "equal" : "different: " + expected + " and " + made);
            } catch (Throwable failure) {
                OUT.println("not read: " + text(failure));
            }
        }
    }

    /** What the serializer writes for each entry; a null map has none. The order of a map's entries doesn't count. */
    private static List<String> entries(TypeSerializer<Object> own, Object map) throws Exception {
        List<String> entries = new ArrayList<>();
        if (map != null) {
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) map).entrySet()) {
                entries.add(HEX.formatHex(written(own, Collections.singletonMap(entry.getKey(), entry.getValue()))));
            }
        }
        Collections.sort(entries);
        return entries;
    }

    @SuppressWarnings("unchecked")
    private static TypeSerializer<Object> restored(String snapshot) {
        try {
            DataInputDeserializer input = new DataInputDeserializer(HEX.parseHex(snapshot));
            return TypeSerializerSnapshot.<Object>readVersionedSnapshot(input, KryoValues.class.getClassLoader()).restoreSerializer();
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        }
    }

    private static byte[] written(TypeSerializer<Object> serializer, Object value) throws Exception {
        DataOutputSerializer output = new DataOutputSerializer(64);
        serializer.serialize(value, output);
        return output.getCopyOfBuffer();
    }

    private static String snapshot(TypeSerializer<?> serializer) throws Exception {
        DataOutputSerializer output = new DataOutputSerializer(64);
        TypeSerializerSnapshot.writeVersionedSnapshot(output, serializer.snapshotConfiguration());
        return HEX.formatHex(output.getCopyOfBuffer());
    }
}
