package stateferry.flink.types;

import java.util.Map;
import java.util.Set;
import org.apache.flink.api.common.typeinfo.TypeInformation;

/** Types that Flink 1 doesn't have. */
final class TypesSinceFlink2 {
    private TypesSinceFlink2() {}

    static Map<String, Kind<?>> scalars() {
        return Map.of();
    }

    static <T> TypeInformation<Set<T>> set(TypeInformation<T> element) {
        throw new UnsupportedOperationException("expected Flink 2 or later for a set of " + element);
    }
}
