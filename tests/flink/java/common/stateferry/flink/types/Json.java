package stateferry.flink.types;

import java.math.BigDecimal;
import java.math.MathContext;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Locale;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonGenerator;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonProcessingException;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.DeserializationFeature;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.PropertyNamingStrategies;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.DoubleNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.JsonNodeFactory;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.TextNode;

/** JSON in the shape of a dump: integers exact, what JSON cannot say as text, everything beyond ASCII escaped. */
public final class Json {
    public static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final ObjectMapper MAPPER =
            new ObjectMapper()
                    .configure(JsonGenerator.Feature.ESCAPE_NON_ASCII, true)
                    .configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, true)
                    .setPropertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE);
    private static final DateTimeFormatter SECONDS = DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss", Locale.ROOT);

    private Json() {}

    public static String text(JsonNode node) {
        try {
            return MAPPER.writeValueAsString(node);
        } catch (JsonProcessingException e) {
            throw new IllegalStateException(e);
        }
    }

    public static JsonNode parse(String text) throws JsonProcessingException {
        return MAPPER.readTree(text);
    }

    public static <T> T bind(JsonNode node, Class<T> type) throws JsonProcessingException {
        return MAPPER.treeToValue(node, type);
    }

    static JsonNode number(double value) {
        if (Double.isNaN(value) || Double.isInfinite(value)) {
            return TextNode.valueOf(Double.toString(value));
        }
        return DoubleNode.valueOf(value);
    }

    /** As few digits as tell the value from its neighbours: Float.toString may print more. */
    static JsonNode number(float value) {
        if (Float.isNaN(value) || Float.isInfinite(value)) {
            return TextNode.valueOf(Float.toString(value));
        }
        if (value == 0) {
            return DoubleNode.valueOf(value);
        }
        BigDecimal exact = new BigDecimal(value);
        for (int digits = 1; ; digits++) {
            BigDecimal rounded = exact.round(new MathContext(digits));
            if (rounded.floatValue() == value) {
                return DoubleNode.valueOf(rounded.doubleValue());
            }
        }
    }

    static JsonNode number(BigDecimal value) {
        return TextNode.valueOf(value.toString());
    }

    /** An instant in UTC with exactly three digits of milliseconds. */
    static JsonNode millis(long epochMillis) {
        Instant instant = Instant.ofEpochMilli(epochMillis);
        return TextNode.valueOf(
                String.format(Locale.ROOT, "%s.%03dZ", utc(instant), instant.getNano() / 1_000_000));
    }

    /** An instant in UTC with exactly nine digits of nanoseconds. */
    static JsonNode nanos(Instant instant) {
        return TextNode.valueOf(String.format(Locale.ROOT, "%s.%09dZ", utc(instant), instant.getNano()));
    }

    private static String utc(Instant instant) {
        return SECONDS.format(instant.atOffset(ZoneOffset.UTC));
    }
}
