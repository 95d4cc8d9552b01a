package stateferry.flink.types;

import java.util.List;
import java.util.Random;
import java.util.function.Function;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;

/** A type without parts, or one whose parts are of no interest here. */
final class Scalar<T> extends Kind<T> {
    private final TypeInformation<T> info;
    private final List<T> edges;
    private final Function<Random, T> drawing;
    private final Function<T, JsonNode> showing;

    Scalar(TypeInformation<T> info, Function<Random, T> drawing, Function<T, JsonNode> showing, List<T> edges) {
        this.info = info;
        this.edges = edges;
        this.drawing = drawing;
        this.showing = showing;
    }

    @Override
    public TypeInformation<T> info() {
        return info;
    }

    @Override
    public List<T> edges() {
        return edges;
    }

    @Override
    protected T random(Random random) {
        return drawing.apply(random);
    }

    @Override
    protected JsonNode json(T value) {
        return showing.apply(value);
    }
}
