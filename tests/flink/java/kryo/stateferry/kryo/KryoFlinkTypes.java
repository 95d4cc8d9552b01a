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
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.java.tuple.Tuple;
import org.apache.flink.api.java.tuple.Tuple0;
import org.apache.flink.api.java.tuple.Tuple11;
import org.apache.flink.api.java.tuple.Tuple12;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.types.Either;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;

/** Maps by Kryo whose keys and values are of classes of Flink: tuples, rows, Either. */
final class KryoFlinkTypes {
    private static final TypeInformation<?> S = Types.STRING;
    private static final TypeInformation<?> L = Types.LONG;

    private KryoFlinkTypes() {}

    /** Those that Flink's own serializers write. */
    static void maps() throws Exception {
        tuples();
        eithers();
        rows();
    }

    private static void tuples() throws Exception {
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

    private static void eithers() throws Exception {
        TypeInformation<?> type = Types.EITHER(L, S);
        String text = new String("said again");
        Either<Object, Object> left = Either.Left(5L);
        Either<Object, Object> right = Either.Right(text);
        show("Either of both sides", Types.MAP(S, type), linked("a", left, text, right, "b", Either.Right("x"), "c", left, "d", right, "e", null));
        show("Either keys", Types.MAP(type, L), linked(left, 1L, right, 2L));
        show("Either in lists", Types.MAP(S, Types.LIST(type)), linked("a", list(left, right, left), "b", list(left), "c", list()));
        TypeInformation<?> deep = Types.EITHER(Types.LIST(S), Types.EITHER(Types.INT, Types.MAP(S, type)));
        Either<Object, Object> one = Either.Left(list(text, "y"));
        Either<Object, Object> other = Either.Right(Either.Right(linked("k", left, text, right)));
        show("Either of Either", Types.MAP(S, deep), linked("a", one, "b", other, "c", Either.Right(Either.Left(7)), "d", one, "e", other));
        show("Either in tuples", Types.MAP(S, Types.TUPLE(type, S)), linked("a", of(left, text), "b", of(right, text)));
    }

    private static void rows() throws Exception {
        String text = new String("said again");
        TypeInformation<?> type = Types.ROW(L, S, Types.LOCAL_DATE_TIME);
        LocalDateTime moment = LocalDateTime.of(2024, 1, 2, 3, 4);
        Row one = row(RowKind.INSERT, 5L, text, moment);
        Map<Object, Object> kinds = linked(text, one);
        for (RowKind kind : RowKind.values()) {
            kinds.put(kind.name(), row(kind, 6L, kind.name(), moment));
            kinds.put(kind.name() + " again", row(kind, null, text, null));
        }
        kinds.put("one again", one);
        kinds.put("null", null);
        show("Row of all kinds", Types.MAP(S, type), kinds);
        show("Row keys", Types.MAP(type, L), linked(one, 1L, row(RowKind.DELETE, null, null, null), 2L));
        show("Row in lists", Types.MAP(S, Types.LIST(type)), linked("a", list(one, one, row(RowKind.UPDATE_AFTER, 1L, null, moment)), "b", list()));
        show("Row of none", Types.MAP(S, Types.ROW()), linked("a", row(RowKind.INSERT), "b", row(RowKind.DELETE)));
        for (int arity : new int[] {1, 5, 6, 7, 13, 14, 15, 22, 25}) {
            TypeInformation<?>[] types = new TypeInformation<?>[arity];
            Object[] fields = new Object[arity];
            Arrays.setAll(types, i -> i % 2 == 0 ? L : S);
            Arrays.setAll(fields, i -> i % 3 == 0 ? null : i % 2 == 0 ? (Object) (long) i : text);
            show("Row of " + arity, Types.MAP(S, Types.ROW(types)), linked("a", row(RowKind.UPDATE_BEFORE, fields), "b", row(RowKind.INSERT, fields)));
        }
        TypeInformation<?> deep = Types.ROW(type, Types.LIST(type), Types.TUPLE(S, type), Types.MAP(S, type), Types.EITHER(type, S));
        Row nested = row(RowKind.DELETE, one, list(one, row(RowKind.DELETE, 7L, "z", null)), of(text, one), linked("k", one, text, null), Either.Left(one));
        show("Row of rows", Types.MAP(S, deep), linked("a", nested, "b", row(RowKind.INSERT, null, null, null, null, Either.Right(text)), "c", nested));
        TypeInformation<?>[] outer = new TypeInformation<?>[12];
        Arrays.fill(outer, type);
        Object[] fields = new Object[12];
        Arrays.setAll(fields, i -> i % 4 == 0 ? one : row(RowKind.values()[i % 4], (long) i, text, moment));
        show("Row in Tuple12", Types.MAP(S, Types.TUPLE(outer)), linked("a", of(fields), "b", of(fields)));
    }

    /** Those of which Flink writes a part by Kryo. */
    static void kept() throws Exception {
        keptEithers();
        keptRows();
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

    private static void keptEithers() throws Exception {
        TypeInformation<?> eithers = Types.MAP(S, Types.GENERIC(Either.class));
        TypeInformation<?> objects = Types.MAP(S, Types.GENERIC(Object.class));
        String text = new String("said again");
        UUID id = new UUID(5, 6);
        Either<Object, Object> left = Either.Left(list(id, text));
        Either<Object, Object> right = Either.Right(text);
        kept("Either by Kryo", eithers, linked("a", left, text, right, "b", right, "c", left, "d", null));
        kept("Either as Object", objects, linked("a", id, "b", left, "c", list(right, left, right), text, linked("x", right)));
        kept("Either of one with a part by Kryo", Types.MAP(S, Types.EITHER(Types.GENERIC(UUID.class), S)), linked("a", Either.Left(id), "b", right, "c", Either.Left(id)));
        TypeSerializer<Either<Long, String>> serializer = Types.EITHER(Types.LONG, Types.STRING).createSerializer(new SerializerConfigImpl());
        Either<Long, String> used = serializer.copy(Either.Left(1L), Either.Right("x"));
        kept("Either that was used twice", eithers, linked("a", used, "b", used));
    }

    private static void keptRows() throws Exception {
        TypeInformation<?> rows = Types.MAP(S, Types.GENERIC(Row.class));
        TypeInformation<?> objects = Types.MAP(S, Types.GENERIC(Object.class));
        String text = new String("said again");
        UUID id = new UUID(5, 6);
        Row one = row(RowKind.INSERT, text, 5L, null, list(id, text));
        Row other = row(RowKind.DELETE, one, id);
        kept("Row by Kryo", rows, linked("a", one, text, other, "b", row(RowKind.INSERT, id), "c", one, "d", null));
        kept("Row as Object", objects, linked("a", id, "b", one, "c", list(other, one, other), text, linked("x", other), "d", RowKind.DELETE, "e", RowKind.INSERT));
        kept("Row with a part by Kryo", Types.MAP(S, Types.ROW(S, Types.GENERIC(Object.class))), linked("a", row(RowKind.DELETE, text, id), "b", row(RowKind.DELETE, text, RowKind.DELETE), "c", row(RowKind.INSERT, null, null), text, row(RowKind.INSERT, text, list(id, text))));
        Row named = Row.withNames();
        named.setField("a", 5L);
        named.setField(text, text);
        named.setField("none", null);
        named.setField("list", list(id, "x"));
        Row more = Row.withNames(RowKind.UPDATE_AFTER);
        more.setField("a", named);
        kept("Row with names", rows, linked("a", named, text, more, "c", named));
        kept("Row with names as Object", objects, linked("a", list(named, named), text, more));
        TypeSerializer<Row> serializer = Types.ROW_NAMED(new String[] {"a", "b"}, L, S).createSerializer(new SerializerConfigImpl());
        DataOutputSerializer output = new DataOutputSerializer(64);
        serializer.serialize(Row.of(5L, text), output);
        Row positioned = serializer.deserialize(new DataInputDeserializer(output.getCopyOfBuffer()));
        kept("Row with names and positions", rows, linked("a", positioned, "b", row(RowKind.INSERT, 1L)));
        Row second = serializer.deserialize(new DataInputDeserializer(output.getCopyOfBuffer()));
        kept("Row with the names of another", rows, linked("a", positioned, "b", second));
    }

    private static Row row(RowKind kind, Object... fields) {
        Row row = new Row(kind, fields.length);
        for (int i = 0; i < fields.length; i++) {
            row.setField(i, fields[i]);
        }
        return row;
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
