package stateferry.flink.types;

import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.BinaryNode;
import org.apache.flink.types.bitmap.Bitmap;
import org.apache.flink.types.variant.BinaryVariant;
import org.apache.flink.types.variant.Variant;
import org.apache.flink.types.variant.VariantBuilder;

/** Types that Flink 1 doesn't have. */
final class TypesSinceFlink2 {
    private TypesSinceFlink2() {}

    static Map<String, Kind<?>> scalars() {
        return Map.of(
                "Variant", new Scalar<>(Types.VARIANT, TypesSinceFlink2::variant, TypesSinceFlink2::json, List.of()),
                "Bitmap", new Scalar<>(
                        Types.BITMAP,
                        r -> Bitmap.fromArray(r.ints(r.nextInt(9)).toArray()),
                        bitmap -> BinaryNode.valueOf(bitmap.toBytes()),
                        List.of(Bitmap.empty())));
    }

    static <T> TypeInformation<Set<T>> set(TypeInformation<T> element) {
        return Types.SET(element);
    }

    private static Variant variant(Random random) {
        VariantBuilder builder = Variant.newBuilder();
        return builder.object()
                .add("name", builder.of(Scalars.text(random, 5)))
                .add("counts", builder.array().add(builder.of(random.nextLong())).add(builder.ofNull()).build())
                .build();
    }

    private static JsonNode json(Variant variant) {
        BinaryVariant binary = (BinaryVariant) variant;
        return Json.NODES.objectNode().put("value", binary.getValue()).put("metadata", binary.getMetadata());
    }
}
