package stateferry.flink.types;

import java.lang.reflect.Array;
import java.lang.reflect.Method;
import java.lang.reflect.Type;
import java.time.DayOfWeek;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZonedDateTime;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Function;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.typeutils.TypeExtractor;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.TextNode;
import stateferry.flink.pojo.Basket;
import stateferry.flink.pojo.Crowd;
import stateferry.flink.pojo.Dated;
import stateferry.flink.pojo.Rack;
import stateferry.flink.pojo.Ticket;

/**
 * What isn't a map, as people declare it, by a {@code TypeHint} or a class: Flink's extraction chooses the serializer.
 *
 * <p>{@code HintedList<T>} is {@code TypeInformation.of(new TypeHint<List<T>>() {})}, {@code ListClass<T>} is {@code
 * List.class}, {@code Object<T>} is {@code Object.class} where a job puts a T, and {@code Generic<T>} is {@code
 * Types.GENERIC} of the class of T. {@code Dated<T>} is a class of the job with a type parameter, {@code Ticket<Long>}
 * one with fields that have type arguments.
 */
class DeclaredValue<T> extends Kind<Object> {
    private static final Map<String, Kind<?>> SCALARS = Map.of(
            "Duration", scalar(Duration.class, r -> Duration.ofSeconds(r.nextInt(), r.nextInt(1_000_000_000))),
            "ZonedDateTime", scalar(ZonedDateTime.class, DeclaredValue::zoned),
            "BitSet", scalar(BitSet.class, r -> BitSet.valueOf(new long[] {r.nextLong(), r.nextLong() >>> 1})),
            "DayOfWeek", scalar(DayOfWeek.class, r -> DayOfWeek.of(1 + r.nextInt(7))));
    private final Kind<T> kind;
    private final Type declared;
    private final Function<T, Object> maker;

    private DeclaredValue(Kind<T> kind, Type declared, Function<T, Object> maker) {
        this.kind = kind;
        this.declared = declared;
        this.maker = maker;
    }

    private static <T> Kind<T> scalar(Class<T> type, Function<Random, T> drawing) {
        return new Scalar<>(Types.GENERIC(type), drawing, value -> TextNode.valueOf(value.toString()), List.of());
    }

    private static ZonedDateTime zoned(Random random) {
        ZoneId zone = ZoneId.of(random.nextBoolean() ? "Europe/Berlin" : "Z");
        return Instant.ofEpochSecond(random.nextInt()).atZone(zone);
    }

    /** JSON as Jackson reads it. Not each class path of the tests has Jackson. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Kind<?> ofJackson() {
        String of = "com.fasterxml.jackson.databind.";
        try {
            Object mapper = Class.forName(of + "ObjectMapper").getConstructor().newInstance();
            Method reading = mapper.getClass().getMethod("readTree", String.class);
            return scalar((Class) Class.forName(of + "node.ObjectNode"), random -> {
                try {
                    int number = random.nextInt();
                    return reading.invoke(mapper, "{\"of\":[" + number + ",null,\"n" + number % 9 + "\",{\"a\":"
                            + random.nextGaussian() + "}],\"is\":" + random.nextBoolean() + ",\"long\":"
                            + random.nextLong() + "}");
                } catch (ReflectiveOperationException e) {
                    throw new IllegalStateException(e);
                }
            });
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    /** The kind of this name; null if it isn't such a declaration. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static Kind<?> named(String name, List<Kind<?>> arguments) {
        if (name.equals("ObjectNode")) {
            return ofJackson();
        }
        if (arguments.isEmpty()) {
            return SCALARS.get(name);
        }
        Kind<?> argument = arguments.get(0);
        if (name.equals("Object")) {
            return new DeclaredValue<>(argument, Object.class, value -> value);
        }
        if (name.equals("Generic")) {
            Class<?> type = argument.info().getTypeClass();
            return new DeclaredValue<Object>((Kind<Object>) argument, type, value -> value) {
                @Override
                public TypeInformation<Object> info() {
                    return (TypeInformation<Object>) Types.GENERIC(type);
                }
            };
        }
        if (name.equals("Dated")) {
            return new DeclaredValue<Object>(
                    (Kind<Object>) argument, new DeclaredMap.Generic(Dated.class, argument.declared()), Dated::new) {
                @Override
                protected JsonNode json(Object value) {
                    return value instanceof Dated<?> dated
                            ? Json.NODES.arrayNode().add(argument.show(dated.value())).add(dated.notes())
                            : super.json(value);
                }
            };
        }
        if (name.equals("Ticket")) {
            return new DeclaredValue<Object>((Kind<Object>) argument, Ticket.class, value -> new Ticket((Long) value)) {
                @Override
                protected JsonNode json(Object value) {
                    return value instanceof Ticket ? TextNode.valueOf(value.toString()) : super.json(value);
                }
            };
        }
        Function<Collection<Object>, Object> maker = switch (name) {
            case "HintedList", "ListClass", "ArrayList", "HintedCollection" -> ArrayList::new;
            case "AsList" -> all -> Arrays.asList(all.toArray(
                    (Object[]) Array.newInstance(argument.info().getTypeClass(), 0)));
            case "LinkedList" -> LinkedList::new;
            case "HintedSet", "HashSet", "SetClass" -> HashSet::new;
            case "TreeSet" -> TreeSet::new;
            case "ArrayDeque" -> ArrayDeque::new;
            case "Basket" -> all -> filled(new Basket<>(), all);
            case "Rack" -> all -> filled(new Rack<>(), all);
            case "Crowd" -> all -> filled(new Crowd<>(), all);
            default -> null;
        };
        if (maker == null) {
            return null;
        }
        Class<?> type = switch (name) {
            case "HintedList", "ListClass", "AsList" -> List.class;
            case "HintedCollection" -> Collection.class;
            case "HintedSet", "SetClass" -> Set.class;
            default -> maker.apply(List.of()).getClass();
        };
        Type declared = name.endsWith("Class") ? type : new DeclaredMap.Generic(type, argument.declared());
        Kind<List<Object>> elements = new Composites.ListKind(argument, Composites.Size.SMALL);
        return new DeclaredValue<>(elements, declared, maker::apply);
    }

    private static Collection<Object> filled(Collection<Object> empty, Collection<Object> with) {
        empty.addAll(with);
        return empty;
    }

    @Override
    Type declared() {
        return declared;
    }

    @Override
    @SuppressWarnings("unchecked")
    public TypeInformation<Object> info() {
        return (TypeInformation<Object>) TypeExtractor.createTypeInfo(declared);
    }

    @Override
    protected Object random(Random random) {
        return maker.apply(kind.draw(random));
    }

    /** The elements of a set have no order; what isn't of the declared kind is shown as text. */
    @Override
    @SuppressWarnings("unchecked")
    protected JsonNode json(Object value) {
        try {
            if (value instanceof Set<?> set) {
                List<Object> sorted = new ArrayList<>(set);
                sorted.sort((one, other) -> String.valueOf(one).compareTo(String.valueOf(other)));
                return kind.show(sorted);
            }
            return kind.show(value instanceof Collection<?> all ? new ArrayList<>(all) : value);
        } catch (ClassCastException e) {
            return TextNode.valueOf("another class: " + value);
        }
    }
}
