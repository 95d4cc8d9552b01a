package stateferry.flink.types;

import java.util.List;

/** Flink 2 has no serializers of its own for Scala. */
final class TypesOfScala {
    private TypesOfScala() {}

    static Kind<?> build(String name, List<Kind<?>> arguments) {
        return null;
    }
}
