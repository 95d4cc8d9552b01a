package stateferry.flink.types;

import java.lang.reflect.Type;
import java.util.List;
import java.util.Random;
import org.apache.flink.api.common.serialization.SerializerConfig;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.NullNode;

/** A Flink type as the tests see it: Flink's own description, how to draw a value, how a dump shows a value. */
public abstract class Kind<T> {
    private static final int EDGE_ONE_IN = 6;

    public abstract TypeInformation<T> info();

    /** The Java type as a {@code TypeHint} names it. */
    Type declared() {
        return info().getTypeClass();
    }

    protected abstract T random(Random random);

    protected abstract JsonNode json(T value);

    /** Values at the limits of the type, which random draws would hardly meet. */
    public List<T> edges() {
        return List.of();
    }

    public final T draw(Random random) {
        List<T> edges = edges();
        if (!edges.isEmpty() && random.nextInt(EDGE_ONE_IN) == 0) {
            return edges.get(random.nextInt(edges.size()));
        }
        return random(random);
    }

    @SuppressWarnings("unchecked")
    public final JsonNode show(Object value) {
        return value == null ? NullNode.instance : json((T) value);
    }

    public final TypeSerializer<T> serializer(SerializerConfig config) {
        return info().createSerializer(config);
    }
}
