package stateferry.flink;

import java.util.Set;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;

/** Sets have a type of their own since Flink 2. */
public final class SetType {
    private SetType() {}

    public static <T> TypeInformation<Set<T>> of(TypeInformation<T> element) {
        return Types.SET(element);
    }
}
