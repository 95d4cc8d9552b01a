package stateferry.kryo;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Collections;
import java.util.Date;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.Hashtable;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import java.util.Vector;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeinfo.BasicArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.java.tuple.Tuple10;
import org.apache.flink.api.java.tuple.Tuple11;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.types.Either;
import org.apache.flink.types.Row;

/**
 * Writes maps with Flink's KryoSerializer, and the same maps with Flink's own serializer of the types that they hold.
 *
 * <p>Each line is JSON: a name, the serializer's snapshot, the bytes; the snapshot and the bytes of Flink's own
 * serializer, unless the map has no such type. Where Flink refuses, the line has its reason.
 */
public final class KryoExamples {
    private static final HexFormat HEX = HexFormat.of();
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static final TypeInformation<?> S = Types.STRING;
    private static final TypeInformation<?> L = Types.LONG;

    enum Color { RED, GREEN }

    public static final class Thing {
        public String name = "x";
        public int n = 1;
    }

    private KryoExamples() {}

    public static void main(String[] arguments) throws Exception {
        kinds();
        scalars();
        strings();
        arrays();
        collections();
        nested();
        references();
        registrations();
        others();
        random();
        KryoFlinkTypes.maps();
        KryoCollections.maps();
    }

    private static TypeInformation<?> map(TypeInformation<?> key, TypeInformation<?> value) {
        return Types.MAP(key, value);
    }

    private static <K, V> Map<K, V> fill(Map<K, V> map, Object... parts) {
        for (int i = 0; i < parts.length; i += 2) {
            @SuppressWarnings("unchecked")
            K key = (K) parts[i];
            @SuppressWarnings("unchecked")
            V value = (V) parts[i + 1];
            map.put(key, value);
        }
        return map;
    }

    private static Map<Object, Object> linked(Object... parts) {
        return fill(new LinkedHashMap<>(), parts);
    }

    private static Set<Object> fillSet(Set<Object> set, Object... parts) {
        set.addAll(Arrays.asList(parts));
        return set;
    }

    private static List<Object> list(Object... parts) {
        return new ArrayList<>(Arrays.asList(parts));
    }

    private static void kinds() {
        TypeInformation<?> type = map(S, L);
        Map<String, Map<?, ?>> kinds = new LinkedHashMap<>();
        for (int size : new int[] {0, 1, 3, 127, 128, 300}) {
            Map<Object, Object> map = new HashMap<>();
            for (int i = 0; i < size; i++) {
                map.put("item-" + i, 500L + i);
            }
            kinds.put("HashMap of " + size, map);
            if (size > 128) {
                continue;
            }
            kinds.put("LinkedHashMap of " + size, new LinkedHashMap<>(map));
            kinds.put("TreeMap of " + size, new TreeMap<>(map));
            kinds.put("ConcurrentHashMap of " + size, new ConcurrentHashMap<>(map));
            kinds.put("Hashtable of " + size, new Hashtable<>(map));
            kinds.put("ConcurrentSkipListMap of " + size, new ConcurrentSkipListMap<>(map));
            kinds.put("unmodifiableMap of " + size, Collections.unmodifiableMap(map));
            kinds.put("synchronizedMap of " + size, Collections.synchronizedMap(map));
            kinds.put("Map.copyOf of " + size, Map.copyOf(map));
        }
        kinds.put("TreeMap reverse", fill(new TreeMap<>(Collections.reverseOrder()), "a", 1L, "b", 2L));
        kinds.put("TreeMap case insensitive", fill(new TreeMap<>(String.CASE_INSENSITIVE_ORDER), "a", 1L, "b", 2L));
        kinds.put("TreeMap natural", fill(new TreeMap<Object, Object>((java.util.Comparator) java.util.Comparator.naturalOrder()), "a", 1L));
        kinds.put("empty TreeMap reverse", new TreeMap<>(Collections.reverseOrder()));
        kinds.put("emptyMap", Collections.emptyMap());
        kinds.put("singletonMap", Collections.singletonMap("a", 1L));
        kinds.put("WeakHashMap", fill(new WeakHashMap<>(), "a", 1L));
        kinds.put("IdentityHashMap", fill(new IdentityHashMap<>(), "a", 1L));
        kinds.put("null values", linked("a", 1L, "b", null));
        kinds.put("null key", fill(new HashMap<>(), null, 1L));
        kinds.forEach((name, value) -> {
            show(name + " as Map", Map.class, type, value);
            show(name + " as its class", value.getClass(), type, value);
        });
        show("null as Map", Map.class, type, null);
        show("null as HashMap", HashMap.class, type, null);
        show("HashMap declared TreeMap", Map.class, type, new HashMap<>(Map.of("a", 1L)));
        show("object map", HashMap.class, null, linked("a", 1L, "b", 2));
    }

    private static void scalars() {
        Map<Object, TypeInformation<?>> scalars = new IdentityHashMap<>();
        Object[][] values = {
            {Types.BOOLEAN, true, false},
            {Types.BYTE, (byte) 0, (byte) -1, Byte.MIN_VALUE, Byte.MAX_VALUE},
            {Types.SHORT, (short) 0, (short) -2, (short) 258, Short.MIN_VALUE, Short.MAX_VALUE},
            {Types.INT, 0, -1, 63, 64, -64, -65, 1 << 20, -(1 << 27), Integer.MIN_VALUE, Integer.MAX_VALUE},
            {Types.LONG, 0L, -1L, 63L, 64L, -65L, 1L << 40, 1L << 55, -(1L << 56), Long.MIN_VALUE, Long.MAX_VALUE},
            {Types.FLOAT, 0f, -0f, 1.5f, Float.NaN, Float.MIN_VALUE, Float.NEGATIVE_INFINITY},
            {Types.DOUBLE, 0.0, -0.0, 14.3, Double.NaN, Double.MAX_VALUE, Double.NEGATIVE_INFINITY},
            {Types.CHAR, 'a', '\0', 'ü', '\ud83d', '\uffff'},
            {Types.STRING, "", "a", "ab", "ü", "b\0c"},
            {
                Types.BIG_INT, BigInteger.ZERO, BigInteger.ONE, BigInteger.TWO, BigInteger.TEN, BigInteger.valueOf(-1),
                BigInteger.ONE.shiftLeft(200), BigInteger.ONE.shiftLeft(200).negate(), new BigInteger("10")
            },
            {
                Types.BIG_DEC, BigDecimal.ZERO, BigDecimal.ONE, BigDecimal.TEN, new BigDecimal("1.0"), new BigDecimal("0.00"),
                new BigDecimal("-12345678901234567890.5"), new BigDecimal(BigInteger.ONE, -7), new BigDecimal("10"),
                new BigDecimal("0E-10"), new BigDecimal("1E+100")
            },
            {TypeInformation.of(Date.class), new Date(0), new Date(1_700_000_000_123L), new Date(-1), new Date(Long.MAX_VALUE)},
            {Types.LOCAL_DATE, LocalDate.EPOCH, LocalDate.of(2024, 2, 29), LocalDate.MIN, LocalDate.MAX, LocalDate.of(-5, 1, 1)},
            {
                Types.LOCAL_TIME, LocalTime.MIDNIGHT, LocalTime.MAX, LocalTime.of(12, 30), LocalTime.of(12, 30, 5), LocalTime.of(1, 0),
                LocalTime.of(0, 0, 0, 7)
            },
            {
                Types.LOCAL_DATE_TIME, LocalDateTime.of(2024, 2, 29, 12, 30), LocalDateTime.MIN, LocalDateTime.MAX,
                LocalDateTime.of(1970, 1, 1, 0, 0), LocalDateTime.of(2024, 5, 31, 1, 2, 3, 999_999_999)
            },
            {Types.INSTANT, Instant.EPOCH, Instant.ofEpochSecond(1_700_000_000L, 123_456_789), Instant.MIN, Instant.MAX},
            {Types.SQL_DATE, new java.sql.Date(0), new java.sql.Date(1_700_000_000_000L)},
            {Types.SQL_TIME, new java.sql.Time(0), new java.sql.Time(3_600_000)},
            {Types.SQL_TIMESTAMP, new java.sql.Timestamp(0), new java.sql.Timestamp(1_700_000_000_123L)},
        };
        for (Object[] row : values) {
            TypeInformation<?> type = (TypeInformation<?>) row[0];
            Map<Object, Object> map = new LinkedHashMap<>();
            for (int i = 1; i < row.length; i++) {
                map.put("v" + i, row[i]);
            }
            String name = row[1].getClass().getSimpleName();
            show("values " + name, HashMap.class, map(S, type), map);
            Map<Object, Object> keys = new LinkedHashMap<>();
            for (int i = 1; i < row.length; i++) {
                keys.put(row[i], (long) i);
                Map<Object, Object> one = linked("only", row[i]);
                show("one " + name + " " + i, LinkedHashMap.class, map(S, type), one);
            }
            show("keys " + name, HashMap.class, map(type, L), keys);
            show("list of " + name, HashMap.class, map(S, Types.LIST(type)), linked("k", list(Arrays.copyOfRange(row, 1, row.length))));
            show("null among " + name, HashMap.class, null, linked("k", list(row[1], null, row[1])));
            show("same twice " + name, HashMap.class, map(S, type), linked("k", row[1], "l", row[1]));
        }
    }

    private static void strings() {
        TypeInformation<?> type = map(S, S);
        int number = 0;
        for (int length : new int[] {0, 1, 2, 31, 32, 33, 62, 63, 64, 65, 126, 127, 128, 8191, 8192}) {
            String ascii = "a".repeat(length);
            show("ascii " + length, HashMap.class, type, linked(ascii, "b".repeat(length)));
            if (length > 0) {
                show("two bytes " + length, HashMap.class, type, linked(ascii.substring(1) + "ü", "ß" + ascii.substring(1)));
                show("three bytes " + length, HashMap.class, type, linked(ascii.substring(1) + "€", "k"));
            }
        }
        for (String text : new String[] {"\ud83d\ude00", "\ud83d", "\0", "\0\0", "a\u007f", "\u0080", "\u07ff", "\u0800", "\uffff", "\u3fff\u4000"}) {
            show("odd string " + number++, HashMap.class, type, linked(text, text + text));
        }
    }

    private static void arrays() {
        Object[][] values = {
            {PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO, new byte[0], new byte[] {1, -1}},
            {PrimitiveArrayTypeInfo.BOOLEAN_PRIMITIVE_ARRAY_TYPE_INFO, new boolean[0], new boolean[] {true, false}},
            {PrimitiveArrayTypeInfo.SHORT_PRIMITIVE_ARRAY_TYPE_INFO, new short[0], new short[] {1, -300}},
            {PrimitiveArrayTypeInfo.CHAR_PRIMITIVE_ARRAY_TYPE_INFO, new char[0], new char[] {'a', 'ü', '\uffff'}},
            {PrimitiveArrayTypeInfo.INT_PRIMITIVE_ARRAY_TYPE_INFO, new int[0], new int[] {1, -300, Integer.MAX_VALUE}},
            {PrimitiveArrayTypeInfo.LONG_PRIMITIVE_ARRAY_TYPE_INFO, new long[0], new long[] {1, -300, Long.MIN_VALUE}},
            {PrimitiveArrayTypeInfo.FLOAT_PRIMITIVE_ARRAY_TYPE_INFO, new float[0], new float[] {1.5f, Float.NaN}},
            {PrimitiveArrayTypeInfo.DOUBLE_PRIMITIVE_ARRAY_TYPE_INFO, new double[0], new double[] {14.3, -0.0}},
            {BasicArrayTypeInfo.STRING_ARRAY_TYPE_INFO, new String[0], new String[] {"a", "bc"}, new String[] {"ü", "bcd"}},
            {BasicArrayTypeInfo.LONG_ARRAY_TYPE_INFO, new Long[0], new Long[] {1L, -300L}, new Long[] {null, 5L}},
            {BasicArrayTypeInfo.DOUBLE_ARRAY_TYPE_INFO, new Double[0], new Double[] {1.5}, new Double[] {null}},
            {BasicArrayTypeInfo.INT_ARRAY_TYPE_INFO, new Integer[] {1, 2}},
            {BasicArrayTypeInfo.BOOLEAN_ARRAY_TYPE_INFO, new Boolean[] {true, null}},
        };
        for (Object[] row : values) {
            TypeInformation<?> type = (TypeInformation<?>) row[0];
            Map<Object, Object> map = new LinkedHashMap<>();
            for (int i = 1; i < row.length; i++) {
                map.put("v" + i, row[i]);
            }
            String name = row[1].getClass().getSimpleName();
            show("array " + name, HashMap.class, map(S, type), map);
            show("same array " + name, HashMap.class, map(S, type), linked("a", row[1], "b", row[1]));
        }
        show("array of null String", HashMap.class, map(S, BasicArrayTypeInfo.STRING_ARRAY_TYPE_INFO), linked("a", new String[] {"x", null}));
        show("Object[]", HashMap.class, null, linked("a", new Object[] {"x", 1L}));
        show("long[][]", HashMap.class, null, linked("a", new long[][] {{1}, {2, 3}}));
    }

    private static void collections() {
        TypeInformation<?> strings = map(S, Types.LIST(S));
        TypeInformation<?> longs = map(S, Types.LIST(L));
        Map<String, List<?>> lists = new LinkedHashMap<>();
        lists.put("empty", list());
        lists.put("one", list("a"));
        lists.put("three", list("a", "bc", "ü"));
        lists.put("63", new ArrayList<>(Collections.nCopies(63, "abc")));
        lists.put("64", new ArrayList<>(Collections.nCopies(64, "abc")));
        lists.put("same", list("abc", "abc"));
        lists.forEach((name, one) -> {
            show("ArrayList " + name, HashMap.class, strings, linked("k", one));
            show("LinkedList " + name, HashMap.class, strings, linked("k", new LinkedList<>(one)));
            show("Arrays.asList " + name, HashMap.class, strings, linked("k", Arrays.asList(one.toArray(new String[0]))));
            show("Arrays.asList of objects " + name, HashMap.class, strings, linked("k", Arrays.asList(one.toArray())));
            show("unmodifiableList " + name, HashMap.class, strings, linked("k", Collections.unmodifiableList(one)));
            show("List.copyOf " + name, HashMap.class, strings, linked("k", List.copyOf(one)));
            show("Vector " + name, HashMap.class, strings, linked("k", new Vector<>(one)));
            show("CopyOnWriteArrayList " + name, HashMap.class, strings, linked("k", new CopyOnWriteArrayList<>(one)));
            show("ArrayDeque " + name, HashMap.class, null, linked("k", new ArrayDeque<>(one)));
            show("HashSet " + name, HashMap.class, null, linked("k", new HashSet<>(one)));
            show("LinkedHashSet " + name, HashMap.class, null, linked("k", new LinkedHashSet<>(one)));
            show("TreeSet " + name, HashMap.class, null, linked("k", new TreeSet<>(one)));
        });
        show("emptyList", HashMap.class, strings, linked("k", Collections.emptyList(), "l", Collections.emptyList()));
        show("singletonList", HashMap.class, strings, linked("k", Collections.singletonList("abc")));
        show("subList", HashMap.class, strings, linked("k", list("a", "b", "c").subList(0, 2)));
        show("subList of List.of", HashMap.class, strings, linked("k", List.of("a", "b", "c").subList(0, 2)));
        show("List.of of two classes", HashMap.class, null, linked("k", List.of("a", 1L)));
        show("Set.of", HashMap.class, null, linked("k", Set.of("a")));
        show("ArrayList of Long", HashMap.class, longs, linked("k", list(1L, 2L, 3L), "l", list(), "m", list(-1L)));
        show("LinkedList of Long", HashMap.class, longs, linked("k", new LinkedList<>(list(1L, 2L, 3L))));
        show("Arrays.asList of Long", HashMap.class, longs, linked("k", Arrays.asList(1L, 2L, 3L)));
        show("List.of Long", HashMap.class, longs, linked("k", List.of(1L, 2L, 3L), "l", List.of(1L)));
        show("mixed list kinds", HashMap.class, longs, linked("k", list(1L), "l", new LinkedList<>(list(2L)), "m", Arrays.asList(3L), "n", Collections.emptyList(), "o", Collections.singletonList(4L)));
        show("list of null", HashMap.class, null, linked("k", list((Object) null)));
        show("list of five nulls", HashMap.class, null, linked("k", list(null, null, null, null, null)));
        show("only nulls among texts", HashMap.class, strings, linked("k", list("a"), "l", list(null, null, null, null, null, null)));
        show("TreeSet reverse", HashMap.class, null, linked("k", fillSet(new TreeSet<>(Collections.reverseOrder()), "a", "b")));
        show("list with null", HashMap.class, null, linked("k", list("a", null, "b")));
        show("list with null Long", HashMap.class, null, linked("k", list(1L, null)));
        show("list of two classes", HashMap.class, null, linked("k", list("a", 1L)));
        show("list of lists", HashMap.class, map(S, Types.LIST(Types.LIST(L))), linked("k", list(list(1L, 2L), list(), list(3L))));
        show("list of list kinds", HashMap.class, map(S, Types.LIST(Types.LIST(L))), linked("k", list(list(1L, 2L), new LinkedList<>(list(5L)), list(3L))));
        show("list of maps", HashMap.class, map(S, Types.LIST(map(S, L))), linked("k", list(linked("a", 1L), linked(), linked("b", null))));
        show("list of map kinds", HashMap.class, map(S, Types.LIST(map(S, L))), linked("k", list(linked("a", 1L), new HashMap<>(), new TreeMap<>(linked("b", 2L)))));
        show("list of arrays", HashMap.class, map(S, Types.LIST(PrimitiveArrayTypeInfo.LONG_PRIMITIVE_ARRAY_TYPE_INFO)), linked("k", list(new long[] {1}, new long[0])));
    }

    private static void nested() {
        TypeInformation<?> type = map(S, map(S, L));
        show("map of maps", HashMap.class, type, linked("a", linked("x", 1L, "y", null), "b", linked(), "c", linked("z", 3L)));
        show("map of HashMaps", HashMap.class, type, linked("a", new HashMap<>(linked("x", 1L)), "b", new HashMap<>()));
        show("map of TreeMaps", HashMap.class, type, linked("a", new TreeMap<>(linked("x", 1L)), "b", new TreeMap<>()));
        show("map of map kinds", HashMap.class, type, linked("a", linked("x", 1L), "b", new TreeMap<>(linked("y", 2L)), "c", new HashMap<>(), "d", Collections.emptyMap(), "e", Collections.singletonMap("x", 1L), "f", Map.of("g", 9L), "h", new ConcurrentHashMap<>(Map.of("i", 10L))));
        show("map with null maps", HashMap.class, type, linked("a", null, "b", linked("x", 1L)));
        show("only empty maps", HashMap.class, type, linked("a", linked(), "b", linked()));
        show("one empty map", HashMap.class, type, linked("a", linked()));
        show("three levels", HashMap.class, map(S, type), linked("a", linked("b", linked("c", 5L), "d", linked()), "e", linked()));
        show("list keys", HashMap.class, map(Types.LIST(L), L), linked(list(1L), 2L));
        show("map of lists", HashMap.class, map(Types.INT, Types.LIST(S)), linked(1, list("a0", "b1", "a0"), 2, list(), 3, list("a0")));
        show("map of only empty lists", HashMap.class, map(S, Types.LIST(S)), linked("a", list(), "b", list()));
        show("map of Tuple2", HashMap.class, map(S, Types.TUPLE(L, L)), linked("a", Tuple2.of(1L, 2L), "b", Tuple2.of(3L, 4L)));
        show("map of Tuple2 of texts", HashMap.class, map(S, Types.TUPLE(S, L)), linked("a", Tuple2.of("x", 2L), "b", Tuple2.of("x", 4L)));
        show("Tuple2 keys", HashMap.class, map(Types.TUPLE(S, L), L), linked(Tuple2.of("x", 2L), 5L));
        Map<Object, Object> deep = linked("end", 1L);
        for (int i = 0; i < 70; i++) {
            deep = linked("k", deep);
        }
        show("seventy levels", HashMap.class, null, deep);
    }

    private static void references() {
        String one = new String("shared text");
        String other = new String("shared text");
        show("one String under two keys", HashMap.class, map(S, S), linked("a", one, "b", one));
        show("two equal Strings", HashMap.class, map(S, S), linked("a", one, "b", other));
        show("a key that is also a value", HashMap.class, map(S, S), linked(one, one, "b", one));
        List<Object> shared = list(1L, 2L);
        show("one list under two keys", HashMap.class, map(S, Types.LIST(L)), linked("a", shared, "b", shared, "c", list(1L, 2L)));
        Map<Object, Object> inner = linked("x", one, one, "y");
        show("one map under two keys", HashMap.class, map(S, map(S, S)), linked("a", inner, "b", inner, "c", linked(one, one)));
        show("text of an inner list again", HashMap.class, map(S, Types.LIST(S)), linked("a", list(one, "z"), one, list(one, one)));
        Long number = 123_456_789L;
        show("one Long twice", HashMap.class, map(S, L), linked("a", number, "b", number));
        BigDecimal money = new BigDecimal("12.50");
        show("one BigDecimal twice", HashMap.class, map(S, Types.BIG_DEC), linked("a", money, "b", money));
        BigInteger big = BigInteger.valueOf(77);
        show("one BigInteger twice", HashMap.class, map(S, Types.BIG_INT), linked("a", big, "b", big));
        LocalDate day = LocalDate.of(2024, 1, 1);
        show("one LocalDate twice", HashMap.class, map(S, Types.LOCAL_DATE), linked("a", day, "b", day));
        long[] array = {1, 2};
        show("one array twice", HashMap.class, map(S, PrimitiveArrayTypeInfo.LONG_PRIMITIVE_ARRAY_TYPE_INFO), linked("a", array, "b", array));
        Map<Object, Object> cycle = linked("a", 1L);
        cycle.put("self", cycle);
        show("a map in itself", HashMap.class, null, cycle);
        Map<Object, Object> many = new LinkedHashMap<>();
        for (int i = 0; i < 200; i++) {
            many.put("key-" + i, i % 3 == 0 ? one : "value-" + i);
        }
        show("many references", HashMap.class, map(S, S), many);
    }

    private static void registrations() {
        Map<Object, Object> map = linked("a", new ArrayList<>(List.of("x")), "b", new LinkedList<>(List.of("y")));
        TypeInformation<?> type = map(S, Types.LIST(S));
        show("registered ArrayList", HashMap.class, type, map, ArrayList.class);
        show("registered both", HashMap.class, type, map, LinkedList.class, ArrayList.class);
        show("registered known ones before", HashMap.class, type, map, UUID.class, Integer.class, HashMap.class, String.class, LinkedList.class);
        show("registered maps", Map.class, type, map, TreeMap.class, LinkedHashMap.class, Thing.class, ArrayList.class);
        show("registered LinkedHashMap in Map", Map.class, map(S, L), linked("a", 1L), LinkedHashMap.class);
        show("registered BigDecimal", Map.class, map(S, Types.BIG_DEC), linked("a", BigDecimal.TEN), BigDecimal.class);
        show("registered HashMap, declared LinkedHashMap", LinkedHashMap.class, map(S, map(S, L)), linked("a", new HashMap<>(linked("b", 1L)), "c", linked("d", 5L)), HashMap.class);
        show("registered long[]", HashMap.class, map(S, PrimitiveArrayTypeInfo.LONG_PRIMITIVE_ARRAY_TYPE_INFO), linked("a", new long[] {1}), long[].class);
    }

    private static void others() {
        show("UUID", HashMap.class, null, linked("a", new UUID(1, 2)));
        show("enum", HashMap.class, null, linked("a", Color.RED, "b", Color.GREEN, "c", Color.RED));
        show("enum of the JDK", HashMap.class, null, linked("a", TimeUnit.DAYS));
        show("EnumMap", Map.class, null, new EnumMap<>(Map.of(Color.RED, 1L)));
        show("Properties", Map.class, null, fill(new Properties(), "a", "b"));
        show("Thing", HashMap.class, null, linked("a", new Thing(), "b", new Thing()));
        show("Tuple2 with null", HashMap.class, map(S, Types.TUPLE(L, L)), linked("a", Tuple2.of(1L, null)));
        show("Tuple10", HashMap.class, map(S, Types.TUPLE(L, L, L, L, L, L, L, L, L, L)), linked("a", Tuple10.of(0L, 1L, 2L, 3L, 4L, 5L, 6L, 7L, 8L, 9L)));
        show("Tuple11", HashMap.class, map(S, Types.TUPLE(L, L, L, L, L, L, L, L, L, L, L)), linked("a", Tuple11.of(0L, 1L, 2L, 3L, 4L, 5L, 6L, 7L, 8L, 9L, 10L)));
        show("Row", HashMap.class, map(S, Types.ROW(L, S)), linked("a", Row.of(1L, "b")));
        show("Either", HashMap.class, map(S, Types.EITHER(L, S)), linked("a", Either.Left(1L), "b", Either.Right("c")));
        show("Optional", HashMap.class, null, linked("a", Optional.of(1L)));
        show("BitSet", HashMap.class, null, linked("a", BitSet.valueOf(new long[] {5})));
        show("ZonedDateTime", HashMap.class, null, linked("a", ZonedDateTime.of(2024, 1, 2, 3, 4, 5, 6, ZoneOffset.UTC)));
        show("AtomicLong", HashMap.class, null, linked("a", new AtomicLong(5)));
        show("Duration", HashMap.class, null, linked("a", Duration.ofSeconds(5)));
        show("Class", HashMap.class, null, linked("a", String.class));
    }

    private static void random() {
        Random random = new Random(5);
        for (int i = 0; i < 12; i++) {
            Map<Object, Object> map = new HashMap<>();
            Map<Object, Object> nested = new HashMap<>();
            int size = random.nextInt(40);
            for (int j = 0; j < size; j++) {
                StringBuilder text = new StringBuilder();
                int length = random.nextInt(70);
                int widest = new int[] {0x7f, 0x7f, 0x100, 0x900, 0xffff}[random.nextInt(5)];
                for (int k = 0; k < length; k++) {
                    text.append((char) random.nextInt(widest + 1));
                }
                map.put(text.toString(), random.nextLong() >> random.nextInt(64));
                List<Object> longs = new ArrayList<>();
                for (int k = random.nextInt(5); k > 0; k--) {
                    longs.add(random.nextDouble());
                }
                nested.put((int) random.nextLong() >> random.nextInt(32), random.nextInt(7) == 0 ? null : longs);
            }
            show("random " + i, HashMap.class, map(S, L), map);
            show("random nested " + i, HashMap.class, map(Types.INT, Types.LIST(Types.DOUBLE)), nested);
        }
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
            line.append(", \"snapshot\": \"").append(snapshot(kryo)).append('"');
            byte[] bytes = written(kryo, value);
            line.append(", \"bytes\": \"").append(HEX.formatHex(bytes)).append('"');
            if (type != null) {
                TypeSerializer own = type.createSerializer(config);
                line.append(", \"flink_snapshot\": \"").append(snapshot(own)).append('"');
                line.append(", \"flink\": ").append(tried(own, value));
            }
            line.append(", \"read\": ").append(read(kryo, value, bytes));
        } catch (Throwable failure) {
            line.append(", \"refused\": ").append(quoted(failure));
        }
        OUT.println(line.append('}'));
    }

    private static String tried(TypeSerializer<Object> own, Object value) {
        try {
            return '"' + HEX.formatHex(written(own, value)) + '"';
        } catch (Throwable failure) {
            return "null, \"flink_refused\": " + quoted(failure);
        }
    }

    private static String read(TypeSerializer<Object> kryo, Object value, byte[] bytes) {
        try {
            Object back = kryo.deserialize(new DataInputDeserializer(bytes));
            return value == null ? String.valueOf(back == null) : String.valueOf(value.equals(back));
        } catch (Throwable failure) {
            return quoted(failure);
        }
    }

    private static String quoted(Throwable failure) {
        String text = failure.toString().lines().findFirst().orElse("");
        return '"' + text.replaceAll("[^ -~]", "?").replace("\\", "/").replace("\"", "'") + '"';
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
