package stateferry.flink.types;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.TextNode;
import stateferry.flink.types.Composites.ArrayKind;
import stateferry.flink.types.Composites.EitherKind;
import stateferry.flink.types.Composites.ListKind;
import stateferry.flink.types.Composites.MapKind;
import stateferry.flink.types.Composites.MaybeNull;
import stateferry.flink.types.Composites.NullableKind;
import stateferry.flink.types.Composites.RowKindOf;
import stateferry.flink.types.Composites.SetKind;
import stateferry.flink.types.Composites.Size;
import stateferry.flink.types.Composites.TtlKind;
import stateferry.flink.types.Composites.TupleKind;

/**
 * Types by expression: {@code Map<String,List<Tuple2<Long,String>>>}.
 *
 * <p>A name may be followed by the size of what is drawn ({@code Map{0-40}<Long,String{3-9}>}), by {@code []} and by
 * {@code ?} for a place where nulls are drawn as well. Names that aren't known are classes of the package
 * {@code stateferry.flink.pojo}.
 */
public final class Kinds {
    private static final Pattern NAME = Pattern.compile("([A-Za-z0-9]+)(?:\\{(\\d+)-(\\d+)})?");
    private static final Map<String, Class<?>> PRIMITIVES = Map.of(
            "byte", byte.class, "short", short.class, "int", int.class, "long", long.class, "float", float.class,
            "double", double.class, "boolean", boolean.class, "char", char.class);
    private static final Map<String, String> BOXES = Map.of("int", "Integer", "char", "Character");
    private static final Map<String, Kind<?>> PARSED = new ConcurrentHashMap<>();

    private final String text;
    private int position;

    private Kinds(String text) {
        this.text = text;
    }

    public static Kind<?> parse(String expression) {
        Kind<?> known = PARSED.get(expression);
        if (known == null) {
            Kinds parser = new Kinds(expression.replace(" ", ""));
            known = parser.kind();
            if (parser.position != parser.text.length()) {
                throw parser.unexpected("the end");
            }
            PARSED.put(expression, known);
        }
        return known;
    }

    /** The element of a list's expression. */
    public static Kind<?> elementOf(Kind<?> list) {
        return ((ListKind<?>) list).element;
    }

    public static Kind<?> keyOf(Kind<?> map) {
        return ((MapKind<?, ?>) map).key;
    }

    public static Kind<?> valueOf(Kind<?> map) {
        return ((MapKind<?, ?>) map).value;
    }

    /** The map type whose values each carry a timestamp. */
    public static Kind<?> stampedMap(Kind<?> map) {
        return ((MapKind<?, ?>) map).stamped();
    }

    public static Kind<?> listOf(Kind<?> element) {
        return new ListKind<>(element, new Size(1, 4));
    }

    private Kind<?> kind() {
        Matcher matcher = NAME.matcher(text).region(position, text.length());
        if (!matcher.lookingAt()) {
            throw unexpected("a name");
        }
        position = matcher.end();
        Size size = matcher.group(2) == null
                ? null
                : new Size(Integer.parseInt(matcher.group(2)), Integer.parseInt(matcher.group(3)));
        String name = matcher.group(1);
        Kind<?> out;
        if (PRIMITIVES.containsKey(name)) {
            String box = BOXES.getOrDefault(name, name.substring(0, 1).toUpperCase() + name.substring(1));
            Kind<?> scalar = Scalars.named(box);
            boolean array = text.startsWith("[]", position);
            position += array ? 2 : 0;
            out = array ? new ArrayKind<>(scalar, PRIMITIVES.get(name), size == null ? Size.SMALL : size) : scalar;
        } else {
            out = build(name, arguments(), size);
        }
        while (text.startsWith("[]", position) || text.startsWith("?", position)) {
            boolean array = text.startsWith("[]", position);
            position += array ? 2 : 1;
            out = array ? new ArrayKind<>(out, out.info().getTypeClass(), Size.SMALL) : new MaybeNull<>(out);
        }
        return out;
    }

    private List<Kind<?>> arguments() {
        List<Kind<?>> out = new ArrayList<>();
        if (!text.startsWith("<", position)) {
            return out;
        }
        do {
            position++;
            out.add(kind());
        } while (text.startsWith(",", position));
        if (!text.startsWith(">", position)) {
            throw unexpected("'>'");
        }
        position++;
        return out;
    }

    private static Kind<?> build(String name, List<Kind<?>> arguments, Size given) {
        Size size = given == null ? Size.SMALL : given;
        if (name.matches("Tuple[1-9]\\d*")) {
            return new TupleKind(arguments);
        }
        return switch (name) {
            case "Map" -> new MapKind<>(arguments.get(0), arguments.get(1), size);
            case "List", "Collection" -> new ListKind<>(arguments.get(0), size);
            case "Set" -> new SetKind<>(arguments.get(0), size);
            case "Row" -> new RowKindOf(arguments);
            case "Either" -> new EitherKind<>(arguments.get(0), arguments.get(1));
            case "Nullable" -> new NullableKind<>(arguments.get(0), false);
            case "PaddedNullable" -> new NullableKind<>(arguments.get(0), true);
            case "Ttl" -> new TtlKind<>(arguments.get(0));
            case "Optional" -> Wrapped.optional(arguments.get(0));
            case "Objects" -> Wrapped.objects(arguments.get(0));
            case "AnyList" -> new DeclaredList<>(arguments.get(0), size);
            case "String" -> given == null ? Scalars.named(name) : Scalars.strings(given.least(), given.most());
            case "Opaque" -> given == null ? Scalars.named(name) : Scalars.opaques(given.least(), given.most());
            default -> {
                // Avro and Scala come late: some jobs of the tests run without them.
                Kind<?> found = Scalars.named(name);
                found = found == null && arguments.size() == 2 ? DeclaredMap.named(name, arguments, size) : found;
                found = found == null ? DeclaredValue.named(name, arguments) : found;
                found = found == null && name.startsWith("Avro") ? AvroKind.named(name) : found;
                found = found == null ? ofClass(name) : found;
                found = found == null ? TypesOfScala.build(name, arguments) : found;
                if (found == null) {
                    throw new IllegalArgumentException("expected a known type, found '" + name + "'");
                }
                yield found;
            }
        };
    }

    /** Null if the package has no such class. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Kind<?> ofClass(String name) {
        try {
            Class<?> type = Class.forName("stateferry.flink.pojo." + name);
            if (!type.isEnum()) {
                return new PojoKind<>(type);
            }
            Object[] constants = type.getEnumConstants();
            return new Scalar(
                    Types.ENUM((Class<Enum>) type),
                    r -> constants[((Random) r).nextInt(constants.length)],
                    e -> TextNode.valueOf(((Enum) e).name()),
                    List.of());
        } catch (ClassNotFoundException e) {
            return null;
        }
    }

    private IllegalArgumentException unexpected(String expected) {
        return new IllegalArgumentException(
                "expected " + expected + " at position " + position + " of the type '" + text + "'");
    }
}
