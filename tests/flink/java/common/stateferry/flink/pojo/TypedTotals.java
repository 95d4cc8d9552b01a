package stateferry.flink.pojo;

import java.lang.reflect.Type;
import java.util.Map;
import org.apache.flink.api.common.typeinfo.TypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInfoFactory;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;

/** A POJO whose map has Flink's own serializer in every version. */
@Subclasses(ShopTotals.class)
public class TypedTotals {
    @TypeInfo(Counts.class)
    public Map<String, Long> counts;

    public String name;

    /** Says what the map is. */
    public static class Counts extends TypeInfoFactory<Map<String, Long>> {
        @Override
        public TypeInformation<Map<String, Long>> createTypeInfo(Type type, Map<String, TypeInformation<?>> arguments) {
            return Types.MAP(Types.STRING, Types.LONG);
        }
    }
}
