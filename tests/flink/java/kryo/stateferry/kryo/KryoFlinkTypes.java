package stateferry.kryo;

import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple;
import org.apache.flink.api.java.tuple.Tuple0;
import org.apache.flink.api.java.tuple.Tuple11;
import org.apache.flink.api.java.tuple.Tuple12;

/** Maps by Kryo whose keys and values are of classes of Flink: tuples. */
final class KryoFlinkTypes {
    private static final TypeInformation<?> S = Types.STRING;
    private static final TypeInformation<?> L = Types.LONG;

    private KryoFlinkTypes() {}

    /** Those that Flink's own serializers write. */
    static void maps() throws Exception {
        for (int arity = 1; arity <= Tuple.MAX_ARITY; arity++) {
            TypeInformation<?>[] types = new TypeInformation<?>[arity];
            Arrays.setAll(types, i -> new TypeInformation<?>[] {S, L, Types.INT, Types.LOCAL_DATE_TIME}[i % 4]);
            Map<Object, Object> map = linked("a", tuple(arity, 1), "b", tuple(arity, 2), "c", tuple(arity, 1));
            map.put("d", map.get("a"));
            show("Tuple" + arity + " of all", Types.MAP(S, Types.TUPLE(types)), map);
        }
        TypeInformation<?>[] longs = new TypeInformation<?>[11];
        Arrays.fill(longs, L);
        Tuple11<Long, Long, Long, Long, Long, Long, Long, Long, Long, Long, Long> counts =
                Tuple11.of(0L, 1L, 2L, 3L, 4L, 5L, 6L, 7L, 8L, 9L, 10L);
        show("Tuple11 keys", Types.MAP(Types.TUPLE(longs), L), linked(counts, 5L));
        show("Tuple11 in lists", Types.MAP(S, Types.LIST(Types.TUPLE(longs))), linked("a", list(counts, counts), "b", list()));
        longs[4] = S;
        show("Tuple11 with null", Types.MAP(S, Types.TUPLE(longs)), linked("a", with(counts, 4, null), "b", with(counts, 4, "x")));
        String text = new String("said again");
        LocalDateTime moment = LocalDateTime.of(2024, 1, 2, 3, 4);
        TypeInformation<?>[] mixed = new TypeInformation<?>[12];
        Arrays.setAll(mixed, i -> List.of(S, Types.LIST(S), Types.LOCAL_DATE_TIME, Types.MAP(S, S)).get(i % 4));
        List<Object> texts = list(text, "other", text);
        Map<Object, Object> inner = linked(text, "inner", "more", text);
        Tuple12<Object, Object, Object, Object, Object, Object, Object, Object, Object, Object, Object, Object> shared =
                Tuple12.of(text, texts, moment, inner, "x", list(text), moment, linked("k", text), text, texts, moment, inner);
        show("Tuple12 that shares", Types.MAP(S, Types.TUPLE(mixed)), linked(text, shared, "b", with(shared, 0, "y"), "c", shared));
        TypeInformation<?>[] outer = new TypeInformation<?>[13];
        Arrays.setAll(outer, i -> i % 3 == 0 ? Types.TUPLE(mixed) : i % 3 == 1 ? Types.LIST(Types.TUPLE(mixed)) : S);
        Tuple nested = tuple(13, 0);
        for (int i = 0; i < 13; i++) {
            nested.setField(i % 3 == 0 ? (i == 6 ? with(shared, 8, "z" + i) : shared) : i % 3 == 1 ? list(shared, with(shared, 4, text)) : text, i);
        }
        show("Tuple13 of tuples", Types.MAP(S, Types.TUPLE(outer)), linked("a", nested, "b", with(nested, 12, shared)));
        // What Flink writes by Kryo, and the same objects in a form of Flink's own.
        TypeInformation<?>[] kept = new TypeInformation<?>[11];
        Arrays.setAll(kept, i -> i % 2 == 0 ? S : Types.LIST(S));
        Object[] fields = new Object[11];
        Arrays.setAll(fields, i -> i % 2 == 0 ? (i == 2 ? "own" : text) : texts);
        show("Tuple11 that shares with others", Types.MAP(S, Types.TUPLE(kept)), linked("a", of(fields), "b", of(fields), text, of(fields)));
    }

    /** Those of which Flink writes a part by Kryo. */
    static void kept() throws Exception {
        TypeInformation<?> objects = Types.MAP(S, Types.GENERIC(Object.class));
        kept("Tuple0", Types.MAP(S, Types.GENERIC(Tuple0.class)), linked("a", Tuple0.INSTANCE, "b", Tuple0.INSTANCE, "c", null));
        String text = new String("said again");
        UUID id = new UUID(5, 6);
        List<Object> texts = list(text, id, text);
        for (int arity : new int[] {2, 10, 11, 25}) {
            Tuple one = tuple(arity, 3);
            one.setField(text, 0);
            one.setField(texts, arity - 1);
            kept("Tuple" + arity + " by Kryo", Types.MAP(S, Types.GENERIC(one.getClass())), linked("a", one, text, one, "b", with(one, 0, id)));
            kept("Tuple" + arity + " as Object", objects, linked("a", texts, "b", one, "c", list(one, one), text, linked("x", one)));
        }
        TypeInformation<?>[] types = new TypeInformation<?>[11];
        Arrays.setAll(types, i -> i % 2 == 0 ? S : Types.GENERIC(Object.class));
        Object[] fields = new Object[11];
        Arrays.setAll(fields, i -> i % 2 == 0 ? text : i == 3 ? new LinkedHashSet<>(texts) : text);
        kept("Tuple11 with parts by Kryo", Types.MAP(S, Types.TUPLE(types)), linked("a", of(fields), "b", of(fields)));
        Map<Object, Object> before = linked("x", of(fields));
        kept("Tuple11 behind its parts", Types.MAP(Types.GENERIC(Object.class), Types.TUPLE(types)), linked(texts, of(fields), "b", of(fields)));
        kept("Tuple11 in maps", Types.MAP(S, Types.MAP(S, Types.TUPLE(types))), linked("a", before, "b", before, "c", linked(text, of(fields))));
    }

    private static Tuple of(Object... fields) throws Exception {
        Tuple tuple = (Tuple) Tuple.getTupleClass(fields.length).getConstructor().newInstance();
        for (int i = 0; i < fields.length; i++) {
            tuple.setField(fields[i], i);
        }
        return tuple;
    }

    private static Tuple with(Tuple other, int number, Object field) throws Exception {
        Object[] fields = new Object[other.getArity()];
        Arrays.setAll(fields, other::getField);
        fields[number] = field;
        return of(fields);
    }

    private static Tuple tuple(int arity, int seed) throws Exception {
        Object[] fields = new Object[arity];
        Arrays.setAll(fields, i -> switch (i % 4) {
            case 0 -> "text " + seed + i % 8;
            case 1 -> 1000L * seed + i;
            case 2 -> seed - i;
            default -> LocalDateTime.of(2024, 1 + seed, 1 + i, 3, 4);
        });
        return of(fields);
    }

    static Map<Object, Object> linked(Object... parts) {
        Map<Object, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < parts.length; i += 2) {
            map.put(parts[i], parts[i + 1]);
        }
        return map;
    }

    static List<Object> list(Object... parts) {
        return new ArrayList<>(Arrays.asList(parts));
    }

    private static void show(String name, TypeInformation<?> type, Object map) {
        KryoExamples.show(name, HashMap.class, type, map);
    }

    private static void kept(String name, TypeInformation<?> type, Object map) {
        KryoValues.show(name, HashMap.class, type, map);
    }
}
