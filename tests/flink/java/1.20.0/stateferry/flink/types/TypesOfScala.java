package stateferry.flink.types;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.flink.api.common.serialization.SerializerConfig;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.scala.typeutils.EitherSerializer;
import org.apache.flink.api.scala.typeutils.EnumValueSerializer;
import org.apache.flink.api.scala.typeutils.NothingSerializer;
import org.apache.flink.api.scala.typeutils.OptionSerializer;
import org.apache.flink.api.scala.typeutils.ScalaCaseClassSerializer;
import org.apache.flink.api.scala.typeutils.TraversableSerializer;
import org.apache.flink.api.scala.typeutils.TrySerializer;
import org.apache.flink.api.scala.typeutils.UnitSerializer;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.NullNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.TextNode;
import scala.Enumeration;
import scala.Option;
import scala.Product;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.runtime.BoxedUnit;
import scala.util.Either;
import scala.util.Left;
import scala.util.Right;
import scala.util.Success;
import scala.util.Try;
import stateferry.flink.scala.Rank;
import stateferry.flink.scala.Suit;

/** The types that flink-scala has serializers for; Scala's macros would make the same ones. */
final class TypesOfScala {
    private static final String LIST_BUILDER = "scala.collection.immutable.List.canBuildFrom[Any]";
    private static final String MAP_BUILDER =
            "implicitly[scala.collection.generic.CanBuildFrom[Map[Any, Any],(Any, Any),Map[Any, Any]]]";
    private static final String SET_BUILDER =
            "implicitly[scala.collection.generic.CanBuildFrom[Set[String],String,Set[String]]]";
    private static final int NONE_ONE_IN = 3;
    private static final int MOST_ELEMENTS = 5;

    private TypesOfScala() {}

    /** Null if the name is none of Scala's. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static Kind<?> build(String name, List<Kind<?>> arguments) {
        return switch (name) {
            case "ScalaTuple2", "ScalaTuple3" -> new ProductKind(arguments);
            case "Option" -> option((Kind) arguments.get(0));
            case "ScalaEither" -> either((Kind) arguments.get(0), (Kind) arguments.get(1));
            case "Try" -> successes((Kind) arguments.get(0));
            case "Traversable" -> new ListKind((Kind) arguments.get(0));
            case "ScalaMap" -> new MapKind((Kind) arguments.get(0), (Kind) arguments.get(1));
            case "ScalaSet" -> new SetKind();
            case "Suit" -> enumeration(Suit.MODULE$, Suit.all());
            case "Rank" -> enumeration(Rank.MODULE$, Rank.all());
            case "Unit" -> new Scalar<>(
                    new SerializerTypeInfo<>(BoxedUnit.class, c -> (TypeSerializer) new UnitSerializer()),
                    random -> BoxedUnit.UNIT,
                    unit -> Json.NODES.objectNode(),
                    List.of());
            // There is no value to draw: it stands where none is met.
            case "Nothing" -> new Scalar<>(
                    new SerializerTypeInfo<>(Object.class, c -> new NothingSerializer()),
                    random -> null,
                    nothing -> NullNode.instance,
                    List.of());
            default -> null;
        };
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Kind<?> enumeration(Enumeration all, Enumeration.Value[] constants) {
        return new Scalar<>(
                new SerializerTypeInfo<>(
                        Enumeration.Value.class, c -> (TypeSerializer) new EnumValueSerializer<>(all)),
                random -> constants[random.nextInt(constants.length)],
                constant -> TextNode.valueOf(constant.toString()),
                List.of());
    }

    private static <T> Kind<Option<T>> option(Kind<T> value) {
        TypeInformation<T> inner = value.info();
        return new Scalar<>(
                new SerializerTypeInfo<>(Option.class, c -> new OptionSerializer<>(inner.createSerializer(c))),
                random -> random.nextInt(NONE_ONE_IN) == 0 ? Option.empty() : Option.apply(value.draw(random)),
                option -> {
                    var out = Json.NODES.objectNode();
                    return option.isEmpty() ? out : out.set("some", value.show(option.get()));
                },
                List.of());
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static <L, R> Kind<Either<L, R>> either(Kind<L> left, Kind<R> right) {
        TypeInformation<L> ofLeft = left.info();
        TypeInformation<R> ofRight = right.info();
        boolean onlyRight = ofLeft.getTypeClass() == Object.class;
        return new Scalar<>(
                new SerializerTypeInfo<>(
                        Either.class,
                        c -> (TypeSerializer) new EitherSerializer<>(ofLeft.createSerializer(c), ofRight.createSerializer(c))),
                random -> onlyRight || random.nextBoolean()
                        ? new Right<>(right.draw(random))
                        : new Left<>(left.draw(random)),
                either -> either.isLeft()
                        ? Json.NODES.objectNode().set("left", left.show(either.left().get()))
                        : Json.NODES.objectNode().set("right", right.show(either.right().get())),
                List.of());
    }

    /** A failure's exception is for Kryo to write, so that nobody else could say where it ends. */
    private static <T> Kind<Try<T>> successes(Kind<T> value) {
        TypeInformation<T> inner = value.info();
        return new Scalar<>(
                new SerializerTypeInfo<>(Try.class, c -> new TrySerializer<>(inner.createSerializer(c), c)),
                random -> new Success<>(value.draw(random)),
                success -> Json.NODES.objectNode().set("success", value.show(success.get())),
                List.of());
    }

    /** A case class of two or three fields: Scala's own tuples, the first with a snapshot class of its own. */
    private static final class ProductKind extends Kind<Product> {
        private final List<Kind<?>> fields;

        ProductKind(List<Kind<?>> fields) {
            this.fields = fields;
        }

        @Override
        @SuppressWarnings({"unchecked", "rawtypes"})
        public TypeInformation<Product> info() {
            TypeInformation<?>[] infos = fields.stream().map(Kind::info).toArray(TypeInformation<?>[]::new);
            Class<?> type = fields.size() == 2 ? scala.Tuple2.class : scala.Tuple3.class;
            return new SerializerTypeInfo<>((Class) type, c -> serializer(type, infos, c));
        }

        @SuppressWarnings({"unchecked", "rawtypes"})
        private static TypeSerializer<Product> serializer(
                Class type, TypeInformation<?>[] infos, SerializerConfig config) {
            TypeSerializer<?>[] parts =
                    Arrays.stream(infos).map(info -> info.createSerializer(config)).toArray(TypeSerializer[]::new);
            return infos.length == 2
                    ? (TypeSerializer) org.apache.flink.api.scala.package$.MODULE$.tuple2Serializer(type, parts)
                    : new ScalaCaseClassSerializer<Product>(type, parts);
        }

        @Override
        protected Product random(Random random) {
            Object first = fields.get(0).draw(random);
            Object second = fields.get(1).draw(random);
            return fields.size() == 2
                    ? new scala.Tuple2<>(first, second)
                    : new scala.Tuple3<>(first, second, fields.get(2).draw(random));
        }

        @Override
        protected JsonNode json(Product value) {
            ArrayNode out = Json.NODES.arrayNode();
            for (int i = 0; i < fields.size(); i++) {
                out.add(fields.get(i).show(value.productElement(i)));
            }
            return out;
        }
    }

    private static final class ListKind<T> extends Kind<scala.collection.immutable.List<T>> {
        private final Kind<T> element;

        ListKind(Kind<T> element) {
            this.element = element;
        }

        @Override
        public TypeInformation<scala.collection.immutable.List<T>> info() {
            TypeInformation<T> inner = element.info();
            return new SerializerTypeInfo<>(
                    scala.collection.immutable.List.class,
                    c -> new TraversableSerializer<>(inner.createSerializer(c), LIST_BUILDER));
        }

        @Override
        @SuppressWarnings("unchecked")
        protected scala.collection.immutable.List<T> random(Random random) {
            scala.collection.immutable.List<T> out = (scala.collection.immutable.List<T>) Nil$.MODULE$;
            for (int n = random.nextInt(MOST_ELEMENTS + 1); n > 0; n--) {
                out = out.$colon$colon(element.draw(random));
            }
            return out;
        }

        @Override
        protected JsonNode json(scala.collection.immutable.List<T> value) {
            ArrayNode out = Json.NODES.arrayNode();
            for (Iterator<T> each = value.iterator(); each.hasNext(); ) {
                out.add(element.show(each.next()));
            }
            return out;
        }
    }

    /** An immutable map with Strings as keys, which is a collection of pairs for Flink. */
    private static final class MapKind<K, V> extends Kind<scala.collection.immutable.Map<K, V>> {
        private final Kind<K> key;
        private final Kind<V> value;

        MapKind(Kind<K> key, Kind<V> value) {
            this.key = key;
            this.value = value;
        }

        @Override
        @SuppressWarnings({"unchecked", "rawtypes"})
        public TypeInformation<scala.collection.immutable.Map<K, V>> info() {
            TypeInformation<Product> pair = new ProductKind(List.of(key, value)).info();
            return new SerializerTypeInfo<>(
                    (Class) scala.collection.immutable.Map.class,
                    c -> (TypeSerializer) new TraversableSerializer(pair.createSerializer(c), MAP_BUILDER));
        }

        @Override
        @SuppressWarnings("unchecked")
        protected scala.collection.immutable.Map<K, V> random(Random random) {
            scala.collection.immutable.Map<K, V> out = scala.collection.immutable.Map$.MODULE$.empty();
            for (int n = random.nextInt(MOST_ELEMENTS + 1); n > 0; n--) {
                out = out.$plus(new scala.Tuple2<>(key.draw(random), value.draw(random)));
            }
            return out;
        }

        @Override
        protected JsonNode json(scala.collection.immutable.Map<K, V> map) {
            ObjectNode out = Json.NODES.objectNode();
            for (Iterator<scala.Tuple2<K, V>> each = map.iterator(); each.hasNext(); ) {
                scala.Tuple2<K, V> entry = each.next();
                out.set((String) entry._1(), value.show(entry._2()));
            }
            return out;
        }
    }

    /** An immutable set of Strings. */
    private static final class SetKind extends Kind<scala.collection.immutable.Set<String>> {
        @SuppressWarnings("unchecked")
        private final Kind<String> element = (Kind<String>) Scalars.named("String");

        @Override
        @SuppressWarnings({"unchecked", "rawtypes"})
        public TypeInformation<scala.collection.immutable.Set<String>> info() {
            return new SerializerTypeInfo<>(
                    (Class) scala.collection.immutable.Set.class,
                    c -> (TypeSerializer) new TraversableSerializer(Types.STRING.createSerializer(c), SET_BUILDER));
        }

        @Override
        @SuppressWarnings({"unchecked", "rawtypes"})
        protected scala.collection.immutable.Set<String> random(Random random) {
            scala.collection.mutable.Builder<String, scala.collection.immutable.Set<String>> out =
                    (scala.collection.mutable.Builder) scala.collection.immutable.Set$.MODULE$.newBuilder();
            for (int n = random.nextInt(MOST_ELEMENTS + 1); n > 0; n--) {
                out.$plus$eq(element.draw(random));
            }
            return out.result();
        }

        @Override
        protected JsonNode json(scala.collection.immutable.Set<String> set) {
            List<String> sorted = new ArrayList<>();
            for (Iterator<String> each = set.iterator(); each.hasNext(); ) {
                sorted.add(each.next());
            }
            sorted.sort(null);
            ArrayNode out = Json.NODES.arrayNode();
            sorted.forEach(one -> out.add(element.show(one)));
            return out;
        }
    }
}
