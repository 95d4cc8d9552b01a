package stateferry.flink.types;

import java.lang.reflect.Type;
import java.util.Optional;
import java.util.Random;
import java.util.function.Function;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.typeutils.TypeExtractor;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.TextNode;

/** {@code Optional<T>}, and {@code Objects<T>}: {@code Object.class} where a job puts an array with a T. */
final class Wrapped extends Kind<Object> {
    private final Kind<?> kind;
    private final Type declared;
    private final Function<Object, Object> wrapping;
    private final Function<Object, Object> unwrapping;

    private Wrapped(Kind<?> kind, Type declared, Function<Object, Object> wrapping, Function<Object, Object> unwrapping) {
        this.kind = kind;
        this.declared = declared;
        this.wrapping = wrapping;
        this.unwrapping = unwrapping;
    }

    static Kind<?> optional(Kind<?> kind) {
        Type declared = new DeclaredMap.Generic(Optional.class, kind.declared());
        return new Wrapped(kind, declared, Optional::ofNullable, value -> ((Optional<?>) value).orElse(null));
    }

    static Kind<?> objects(Kind<?> kind) {
        return new Wrapped(kind, Object.class, value -> new Object[] {value}, value -> ((Object[]) value)[0]);
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
        return wrapping.apply(kind.draw(random));
    }

    /** What isn't of the declared kind is shown as text. */
    @Override
    protected JsonNode json(Object value) {
        try {
            return kind.show(unwrapping.apply(value));
        } catch (ClassCastException | ArrayIndexOutOfBoundsException e) {
            return TextNode.valueOf("another object: " + value);
        }
    }
}
