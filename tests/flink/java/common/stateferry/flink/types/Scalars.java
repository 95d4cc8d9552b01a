package stateferry.flink.types;

import com.google.protobuf.StringValue;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.sql.Timestamp;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.UUID;
import org.apache.flink.api.common.typeinfo.BasicTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple0;
import org.apache.flink.api.java.typeutils.TupleTypeInfo;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.BooleanNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.JsonNodeFactory;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.NullNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.TextNode;
import org.apache.flink.streaming.api.windowing.windows.GlobalWindow;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import stateferry.flink.pojo.Labelled;
import stateferry.flink.pojo.Opaque;
import stateferry.flink.pojo.Pair;
import stateferry.flink.pojo.Route;
import stateferry.flink.pojo.ThriftText;

/** The types without parts, by name. */
final class Scalars {
    private static final JsonNodeFactory NODES = Json.NODES;
    private static final Map<String, Kind<?>> BY_NAME = new HashMap<>();
    private static final long DAY_MILLIS = 86_400_000L;
    private static final long CENTURY_SECONDS = 3_155_760_000L;

    private Scalars() {}

    static Kind<?> named(String name) {
        return BY_NAME.get(name);
    }

    /** Strings of a chosen length, counted in UTF-16 units. */
    static Kind<String> strings(int shortest, int longest) {
        return new Scalar<>(
                Types.STRING,
                r -> text(r, shortest + r.nextInt(longest - shortest + 1)),
                TextNode::valueOf,
                List.of());
    }

    /** Objects with a String of a chosen length. */
    static Kind<Opaque> opaques(int shortest, int longest) {
        return new Scalar<>(
                Types.GENERIC(Opaque.class),
                r -> new Opaque(text(r, longest == shortest ? longest : shortest + r.nextInt(longest - shortest + 1)),
                        r.nextInt()),
                o -> TextNode.valueOf(o.toString()),
                List.of());
    }

    static {
        put("String", new Scalar<>(Types.STRING, r -> text(r, r.nextInt(12)), TextNode::valueOf, List.of(
                "", "\0", "a\0b", "\u007f\u0080", "\u07ff\u3fff\u4000", "\uffff", "日本", "😀", "\ud800", "x\udc00y",
                "polygenelubricants", "key-with-a-name-that-is-a-good-deal-longer-than-the-others".repeat(3))));
        put("Long", new Scalar<>(Types.LONG, Random::nextLong, NODES::numberNode, List.of(
                Long.MIN_VALUE, Long.MAX_VALUE, 0L, -1L, 1L, 1L << 53)));
        put("Integer", new Scalar<>(Types.INT, Random::nextInt, NODES::numberNode, List.of(
                Integer.MIN_VALUE, Integer.MAX_VALUE, 0, -1, 1)));
        put("Short", new Scalar<>(Types.SHORT, r -> (short) r.nextInt(), NODES::numberNode, List.of(
                Short.MIN_VALUE, Short.MAX_VALUE, (short) 0)));
        put("Byte", new Scalar<>(Types.BYTE, r -> (byte) r.nextInt(), NODES::numberNode, List.of(
                Byte.MIN_VALUE, Byte.MAX_VALUE, (byte) 0)));
        put("Boolean", new Scalar<>(Types.BOOLEAN, Random::nextBoolean, BooleanNode::valueOf, List.of()));
        put("Double", new Scalar<>(Types.DOUBLE, r -> r.nextGaussian() * 1e6, Json::number, List.of(
                Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY, -0.0, 0.0, Double.MIN_VALUE,
                Double.MAX_VALUE)));
        put("Float", new Scalar<>(Types.FLOAT, r -> (float) r.nextGaussian(), Json::number, List.of(
                Float.NaN, Float.POSITIVE_INFINITY, Float.NEGATIVE_INFINITY, -0.0f, Float.MIN_VALUE, Float.MAX_VALUE)));
        put("Character", new Scalar<>(Types.CHAR, r -> text(r, 1).charAt(0), c -> TextNode.valueOf(c.toString()),
                List.of('\0', '\uffff', '\ud83d', 'é')));
        put("Tuple0", new Scalar<>(new TupleTypeInfo<>(Tuple0.class), r -> Tuple0.INSTANCE, t -> NODES.arrayNode(),
                List.of()));
        put("Void", new Scalar<>(Types.VOID, r -> null, v -> NullNode.instance, List.of()));
        put("BigInteger", new Scalar<>(Types.BIG_INT, r -> new BigInteger(r.nextInt(200), r).multiply(sign(r)),
                NODES::numberNode, List.of(
                BigInteger.ZERO, BigInteger.ONE, BigInteger.TEN, BigInteger.ONE.negate(),
                BigInteger.ONE.shiftLeft(63), BigInteger.ONE.shiftLeft(64).negate(), BigInteger.TWO.pow(4000))));
        put("BigDecimal", new Scalar<>(Types.BIG_DEC,
                r -> new BigDecimal(new BigInteger(r.nextInt(120), r).multiply(sign(r)), r.nextInt(40) - 10),
                Json::number, List.of(
                BigDecimal.ZERO, BigDecimal.ONE, BigDecimal.TEN, new BigDecimal("0.00"), new BigDecimal("1E+400"),
                new BigDecimal("-0.1"), new BigDecimal("123456789012345678901234567890.123456789"))));
        put("Date", new Scalar<>(BasicTypeInfo.DATE_TYPE_INFO, r -> new Date(millis(r)), d -> Json.millis(d.getTime()),
                List.of(new Date(0), new Date(-1))));
        put("SqlDate", new Scalar<>(Types.SQL_DATE, r -> new java.sql.Date(millis(r)), d -> Json.millis(d.getTime()),
                List.of(new java.sql.Date(0), new java.sql.Date(-DAY_MILLIS))));
        put("SqlTime", new Scalar<>(Types.SQL_TIME, r -> new java.sql.Time(r.nextInt((int) DAY_MILLIS)),
                t -> Json.millis(t.getTime()), List.of(new java.sql.Time(0))));
        put("SqlTimestamp", new Scalar<>(Types.SQL_TIMESTAMP, r -> Timestamp.from(instant(r)),
                t -> Json.nanos(t.toInstant()), List.of(
                new Timestamp(0), Timestamp.from(Instant.ofEpochSecond(-1, 999_999_999)))));
        put("LocalDate", new Scalar<>(Types.LOCAL_DATE, r -> LocalDate.ofEpochDay(r.nextInt(80_000) - 40_000),
                d -> TextNode.valueOf(d.toString()), List.of(
                LocalDate.EPOCH, LocalDate.of(1, 1, 1), LocalDate.of(9999, 12, 31), LocalDate.MIN, LocalDate.MAX)));
        put("LocalTime", new Scalar<>(Types.LOCAL_TIME, Scalars::time, t -> TextNode.valueOf(t.toString()), List.of(
                LocalTime.MIDNIGHT, LocalTime.MAX, LocalTime.of(12, 30), LocalTime.of(1, 2, 3),
                LocalTime.of(1, 2, 3, 4_000_000), LocalTime.of(1, 2, 0, 5_000))));
        put("LocalDateTime", new Scalar<>(Types.LOCAL_DATE_TIME,
                r -> LocalDateTime.of(LocalDate.ofEpochDay(r.nextInt(80_000) - 40_000), time(r)),
                t -> TextNode.valueOf(t.toString()), List.of(
                LocalDateTime.of(1970, 1, 1, 0, 0), LocalDateTime.MIN, LocalDateTime.MAX)));
        put("Instant", new Scalar<>(Types.INSTANT, Scalars::instant, i -> TextNode.valueOf(i.toString()), List.of(
                Instant.EPOCH, Instant.ofEpochSecond(-1, 1), Instant.MAX, Instant.ofEpochSecond(5, 600_000_000))));
        put("TimeWindow", new Scalar<>(
                new SerializerTypeInfo<>(TimeWindow.class, c -> new TimeWindow.Serializer()),
                r -> new TimeWindow(millis(r), millis(r) + DAY_MILLIS * 100_000), w -> NODES.objectNode()
                        .put("start", w.getStart()).put("end", w.getEnd()), List.of(new TimeWindow(0, 60_000))));
        put("GlobalWindow", new Scalar<>(
                new SerializerTypeInfo<>(GlobalWindow.class, c -> new GlobalWindow.Serializer()),
                r -> GlobalWindow.get(), w -> NODES.objectNode(), List.of()));
        put("Opaque", opaques(5, 5));
        put("Route", new Scalar<>(Types.GENERIC(Route.class), Scalars::route, o -> TextNode.valueOf(o.toString()),
                List.of()));
        put("Pair", new Scalar<>(TypeInformation.of(Pair.class), r -> new Pair(r.nextLong(), text(r, 5)),
                p -> TextNode.valueOf(p.getClass().getSimpleName() + p), List.of()));
        put("Labelled", new Scalar<>(TypeInformation.of(Labelled.class),
                r -> new Labelled(r.nextLong(), text(r, 5), text(r, 5)),
                p -> TextNode.valueOf(p.label + p), List.of()));
        put("UUID", new Scalar<>(Types.GENERIC(UUID.class), r -> new UUID(r.nextLong() >> r.nextInt(64), r.nextLong()),
                id -> TextNode.valueOf(id.toString()), List.of(new UUID(0, 0), new UUID(-1, 1))));
        put("ProtobufText", new Scalar<>(Types.GENERIC(StringValue.class), r -> StringValue.of(text(r, 5)),
                t -> TextNode.valueOf(t.getValue()), List.of()));
        put("ThriftText", new Scalar<>(Types.GENERIC(ThriftText.class), r -> new ThriftText(text(r, 5)),
                t -> TextNode.valueOf(t.toString()), List.of()));
        BY_NAME.putAll(FlinkValues.all());
        BY_NAME.putAll(TypesSinceFlink2.scalars());
    }

    private static void put(String name, Kind<?> kind) {
        BY_NAME.put(name, kind);
    }

    /** Mostly ASCII, with characters of every encoded width among them. */
    static String text(Random random, int length) {
        char[] out = new char[length];
        for (int i = 0; i < length; i++) {
            int choice = random.nextInt(20);
            out[i] = choice == 0 ? (char) (0xa0 + random.nextInt(0x300))
                    : choice == 1 ? (char) (0x4e00 + random.nextInt(0x5000))
                    : (char) (0x20 + random.nextInt(0x5f));
        }
        return new String(out);
    }

    private static Route route(Random random) {
        String from = text(random, random.nextInt(4));
        return new Route(from, random.nextBoolean() ? from : text(random, random.nextInt(4)));
    }

    private static BigInteger sign(Random random) {
        return random.nextBoolean() ? BigInteger.ONE : BigInteger.ONE.negate();
    }

    private static long millis(Random random) {
        return (random.nextLong() % CENTURY_SECONDS) * 1000 + random.nextInt(1000);
    }

    private static Instant instant(Random random) {
        return Instant.ofEpochSecond(random.nextLong() % CENTURY_SECONDS, random.nextInt(1_000_000_000));
    }

    private static LocalTime time(Random random) {
        return LocalTime.of(random.nextInt(24), random.nextInt(60), random.nextInt(60), random.nextInt(1_000_000_000));
    }
}
