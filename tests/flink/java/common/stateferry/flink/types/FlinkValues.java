package stateferry.flink.types;

import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.function.Function;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.NullNode;
import org.apache.flink.types.BooleanValue;
import org.apache.flink.types.ByteValue;
import org.apache.flink.types.CharValue;
import org.apache.flink.types.DoubleValue;
import org.apache.flink.types.FloatValue;
import org.apache.flink.types.IntValue;
import org.apache.flink.types.LongValue;
import org.apache.flink.types.NullValue;
import org.apache.flink.types.ShortValue;
import org.apache.flink.types.StringValue;
import org.apache.flink.types.Value;

/** Flink's own mutable counterparts of the boxes. */
final class FlinkValues {
    private FlinkValues() {}

    static Map<String, Kind<?>> all() {
        return Map.of(
                "BooleanValue", of(BooleanValue.class, "Boolean", BooleanValue::new, BooleanValue::getValue),
                "ByteValue", of(ByteValue.class, "Byte", ByteValue::new, ByteValue::getValue),
                "ShortValue", of(ShortValue.class, "Short", ShortValue::new, ShortValue::getValue),
                "IntValue", of(IntValue.class, "Integer", IntValue::new, IntValue::getValue),
                "LongValue", of(LongValue.class, "Long", LongValue::new, LongValue::getValue),
                "FloatValue", of(FloatValue.class, "Float", FloatValue::new, FloatValue::getValue),
                "DoubleValue", of(DoubleValue.class, "Double", DoubleValue::new, DoubleValue::getValue),
                "CharValue", of(CharValue.class, "Character", CharValue::new, CharValue::getValue),
                "StringValue", of(StringValue.class, "String", StringValue::new, StringValue::getValue),
                "NullValue", new Scalar<>(
                        Types.VALUE(NullValue.class), r -> NullValue.getInstance(), v -> NullNode.instance, List.of()));
    }

    @SuppressWarnings("unchecked")
    private static <V extends Value, T> Kind<V> of(
            Class<V> type, String box, Function<T, V> wrapping, Function<V, T> unwrapping) {
        Kind<T> kind = (Kind<T>) Scalars.named(box);
        Function<Random, V> drawing = random -> wrapping.apply(kind.draw(random));
        Function<V, JsonNode> showing = value -> kind.show(unwrapping.apply(value));
        return new Scalar<>(Types.VALUE(type), drawing, showing, List.of());
    }
}
