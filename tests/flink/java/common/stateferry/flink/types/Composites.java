package stateferry.flink.types;

import java.lang.reflect.Array;
import java.lang.reflect.Type;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.Set;
import org.apache.flink.api.common.typeinfo.BasicArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.api.java.tuple.Tuple;
import org.apache.flink.api.java.typeutils.ObjectArrayTypeInfo;
import org.apache.flink.api.java.typeutils.runtime.NullableSerializer;
import org.apache.flink.runtime.state.ttl.TtlStateFactory;
import org.apache.flink.runtime.state.ttl.TtlValue;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.BinaryNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.types.Either;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;

/** The types made of other types. */
public final class Composites {
    private Composites() {}

    /** How many elements a drawn collection has. */
    record Size(int least, int most) {
        static final Size SMALL = new Size(0, 5);

        int draw(Random random) {
            return least + random.nextInt(most - least + 1);
        }
    }

    /** The same type at a place where a null is to be met now and then. */
    static final class MaybeNull<T> extends Kind<T> {
        private static final int NULL_ONE_IN = 4;
        private final Kind<T> kind;

        MaybeNull(Kind<T> kind) {
            this.kind = kind;
        }

        @Override
        public TypeInformation<T> info() {
            return kind.info();
        }

        @Override
        Type declared() {
            return kind.declared();
        }

        @Override
        protected T random(Random random) {
            return random.nextInt(NULL_ONE_IN) == 0 ? null : kind.draw(random);
        }

        @Override
        protected JsonNode json(T value) {
            return kind.json(value);
        }
    }

    static class ListKind<T> extends Kind<List<T>> {
        final Kind<T> element;
        private final Size size;

        ListKind(Kind<T> element, Size size) {
            this.element = element;
            this.size = size;
        }

        @Override
        public TypeInformation<List<T>> info() {
            return Types.LIST(element.info());
        }

        @Override
        Type declared() {
            return new DeclaredMap.Generic(List.class, element.declared());
        }

        @Override
        protected List<T> random(Random random) {
            List<T> out = new ArrayList<>();
            for (int n = size.draw(random); n > 0; n--) {
                out.add(element.draw(random));
            }
            return out;
        }

        @Override
        protected JsonNode json(List<T> value) {
            return array(element, value);
        }
    }

    static final class SetKind<T> extends Kind<Set<T>> {
        private final Kind<T> element;
        private final Size size;

        SetKind(Kind<T> element, Size size) {
            this.element = element;
            this.size = size;
        }

        @Override
        public TypeInformation<Set<T>> info() {
            return TypesSinceFlink2.set(element.info());
        }

        @Override
        Type declared() {
            return new DeclaredMap.Generic(Set.class, element.declared());
        }

        @Override
        protected Set<T> random(Random random) {
            Set<T> out = new HashSet<>();
            for (int n = size.draw(random); n > 0; n--) {
                out.add(element.draw(random));
            }
            return new LinkedHashSet<>(sorted(element, out));
        }

        @Override
        protected JsonNode json(Set<T> value) {
            return array(element, sorted(element, value));
        }
    }

    /** Primitive and object arrays alike. */
    static final class ArrayKind<T> extends Kind<Object> {
        private final Kind<T> component;
        private final Class<?> componentClass;
        private final Size size;

        ArrayKind(Kind<T> component, Class<?> componentClass, Size size) {
            this.component = component;
            this.componentClass = componentClass;
            this.size = size;
        }

        @Override
        @SuppressWarnings("unchecked")
        public TypeInformation<Object> info() {
            Class<?> arrayClass = Array.newInstance(componentClass, 0).getClass();
            TypeInformation<?> info = PrimitiveArrayTypeInfo.getInfoFor(arrayClass);
            if (info == null) {
                info = BasicArrayTypeInfo.getInfoFor(arrayClass);
            }
            if (info == null) {
                info = ObjectArrayTypeInfo.getInfoFor(component.info());
            }
            return (TypeInformation<Object>) info;
        }

        @Override
        protected Object random(Random random) {
            Object out = Array.newInstance(componentClass, size.draw(random));
            for (int i = 0; i < Array.getLength(out); i++) {
                Array.set(out, i, component.draw(random));
            }
            return out;
        }

        @Override
        protected JsonNode json(Object value) {
            if (value instanceof byte[] bytes) {
                return BinaryNode.valueOf(bytes);
            }
            ArrayNode out = Json.NODES.arrayNode();
            for (int i = 0; i < Array.getLength(value); i++) {
                out.add(component.show(Array.get(value, i)));
            }
            return out;
        }
    }

    /** A map: an object in JSON when its keys are strings and none is null, an array of pairs otherwise. */
    static class MapKind<K, V> extends Kind<Map<K, V>> {
        final Kind<K> key;
        final Kind<V> value;
        private final Size size;

        MapKind(Kind<K> key, Kind<V> value, Size size) {
            this.key = key;
            this.value = value;
            this.size = size;
        }

        MapKind<K, TtlValue<V>> stamped() {
            return new MapKind<>(key, new TtlKind<>(value), size);
        }

        @Override
        public TypeInformation<Map<K, V>> info() {
            return Types.MAP(key.info(), value.info());
        }

        @Override
        Type declared() {
            return new DeclaredMap.Generic(Map.class, key.declared(), value.declared());
        }

        @Override
        protected Map<K, V> random(Random random) {
            Map<K, V> drawn = new HashMap<>();
            for (int n = size.draw(random); n > 0; n--) {
                drawn.put(key.draw(random), value.draw(random));
            }
            Map<K, V> out = new LinkedHashMap<>();
            for (K k : sorted(key, drawn.keySet())) {
                out.put(k, drawn.get(k));
            }
            return out;
        }

        @Override
        protected JsonNode json(Map<K, V> map) {
            if (key.info().equals(Types.STRING) && map.keySet().stream().noneMatch(Objects::isNull)) {
                ObjectNode out = Json.NODES.objectNode();
                map.forEach((k, v) -> out.set((String) k, value.show(v)));
                return out;
            }
            ArrayNode out = Json.NODES.arrayNode();
            for (K k : sorted(key, map.keySet())) {
                out.addArray().add(key.show(k)).add(value.show(map.get(k)));
            }
            return out;
        }
    }

    static final class TupleKind extends Kind<Tuple> {
        private final List<Kind<?>> fields;

        TupleKind(List<Kind<?>> fields) {
            this.fields = fields;
        }

        @Override
        public TypeInformation<Tuple> info() {
            return Types.TUPLE(infos(fields));
        }

        @Override
        Type declared() {
            Type[] arguments = fields.stream().map(Kind::declared).toArray(Type[]::new);
            return new DeclaredMap.Generic(Tuple.getTupleClass(fields.size()), arguments);
        }

        @Override
        protected Tuple random(Random random) {
            Tuple out = Tuple.newInstance(fields.size());
            for (int i = 0; i < fields.size(); i++) {
                out.setField(fields.get(i).draw(random), i);
            }
            return out;
        }

        @Override
        protected JsonNode json(Tuple value) {
            ArrayNode out = Json.NODES.arrayNode();
            for (int i = 0; i < fields.size(); i++) {
                out.add(fields.get(i).show(value.getField(i)));
            }
            return out;
        }
    }

    /** Rows, most of them inserts, a few of another row kind. */
    static final class RowKindOf extends Kind<Row> {
        private static final int OTHER_KIND_ONE_IN = 5;
        private final List<Kind<?>> fields;

        RowKindOf(List<Kind<?>> fields) {
            this.fields = fields;
        }

        @Override
        public TypeInformation<Row> info() {
            return Types.ROW(infos(fields));
        }

        @Override
        protected Row random(Random random) {
            RowKind kind = RowKind.INSERT;
            if (random.nextInt(OTHER_KIND_ONE_IN) == 0) {
                kind = RowKind.values()[random.nextInt(RowKind.values().length)];
            }
            Row out = new Row(kind, fields.size());
            for (int i = 0; i < fields.size(); i++) {
                out.setField(i, fields.get(i).draw(random));
            }
            return out;
        }

        @Override
        protected JsonNode json(Row value) {
            ArrayNode cells = Json.NODES.arrayNode();
            for (int i = 0; i < fields.size(); i++) {
                cells.add(fields.get(i).show(value.getField(i)));
            }
            if (value.getKind() == RowKind.INSERT) {
                return cells;
            }
            ObjectNode out = Json.NODES.objectNode().put("kind", value.getKind().name());
            return out.set("fields", cells);
        }
    }

    static final class EitherKind<L, R> extends Kind<Either<L, R>> {
        private final Kind<L> left;
        private final Kind<R> right;

        EitherKind(Kind<L> left, Kind<R> right) {
            this.left = left;
            this.right = right;
        }

        @Override
        public TypeInformation<Either<L, R>> info() {
            return Types.EITHER(left.info(), right.info());
        }

        @Override
        protected Either<L, R> random(Random random) {
            return random.nextBoolean() ? Either.Left(left.draw(random)) : Either.Right(right.draw(random));
        }

        @Override
        protected JsonNode json(Either<L, R> value) {
            ObjectNode out = Json.NODES.objectNode();
            return value.isLeft()
                    ? out.set("left", left.show(value.left()))
                    : out.set("right", right.show(value.right()));
        }
    }

    /** Flink's NullableSerializer around a serializer that can't hold null. */
    static final class NullableKind<T> extends Kind<T> {
        private final MaybeNull<T> kind;
        private final boolean padded;

        NullableKind(Kind<T> kind, boolean padded) {
            this.kind = new MaybeNull<>(kind);
            this.padded = padded;
        }

        @Override
        public TypeInformation<T> info() {
            TypeInformation<T> inner = kind.info();
            boolean pad = padded;
            return new SerializerTypeInfo<>(
                    inner.getTypeClass(), c -> NullableSerializer.wrap(inner.createSerializer(c), pad));
        }

        @Override
        protected T random(Random random) {
            return kind.random(random);
        }

        @Override
        protected JsonNode json(T value) {
            return kind.json(value);
        }
    }

    /** A value with its time of last access, in the form in which Flink's TTL stores it. */
    public static final class TtlKind<T> extends Kind<TtlValue<T>> {
        private static final long FIRST = 1_700_000_000_000L;
        private static final long MONTH = 30L * 86_400_000L;
        private static final long[] LIMITS = {0, 1, Long.MAX_VALUE, FIRST + 100 * MONTH};
        private static final int LIMIT_ONE_IN = 25;
        private final Kind<T> kind;

        public TtlKind(Kind<T> kind) {
            this.kind = kind;
        }

        @Override
        public TypeInformation<TtlValue<T>> info() {
            TypeInformation<T> inner = kind.info();
            return new SerializerTypeInfo<>(
                    TtlValue.class,
                    c -> new TtlStateFactory.TtlSerializer<>(LongSerializer.INSTANCE, inner.createSerializer(c)));
        }

        @Override
        protected TtlValue<T> random(Random random) {
            long stamp = random.nextInt(LIMIT_ONE_IN) == 0
                    ? LIMITS[random.nextInt(LIMITS.length)]
                    : FIRST + (long) (random.nextDouble() * MONTH);
            return new TtlValue<>(kind.draw(random), stamp);
        }

        /** The user's value alone: a dump shows the timestamp beside it. */
        @Override
        protected JsonNode json(TtlValue<T> value) {
            return kind.show(value.getUserValue());
        }
    }

    /** Neither sets nor maps keep an order, so contents are drawn, written and shown in the order of their JSON. */
    private static <T> List<T> sorted(Kind<T> kind, Set<T> values) {
        List<T> out = new ArrayList<>(values);
        out.sort(Comparator.comparing(value -> Json.text(kind.show(value))));
        return out;
    }

    private static <T> ArrayNode array(Kind<T> element, Iterable<T> values) {
        ArrayNode out = Json.NODES.arrayNode();
        for (T value : values) {
            out.add(element.show(value));
        }
        return out;
    }

    private static TypeInformation<?>[] infos(List<Kind<?>> kinds) {
        return kinds.stream().map(Kind::info).toArray(TypeInformation<?>[]::new);
    }
}
