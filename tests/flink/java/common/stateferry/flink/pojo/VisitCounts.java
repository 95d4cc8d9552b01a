package stateferry.flink.pojo;

import java.lang.reflect.Type;
import java.util.Map;
import org.apache.flink.api.common.typeinfo.TypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInfoFactory;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;

/** A POJO whose map has Flink's own serializer in every version, with values that have fields by Kryo. */
public class VisitCounts {
    @TypeInfo(Counts.class)
    public Map<String, Visit> counts;

    public String name;
    public Visit last;

    /** Says what the map is. */
    public static class Counts extends TypeInfoFactory<Map<String, Visit>> {
        @Override
        public TypeInformation<Map<String, Visit>> createTypeInfo(Type type, Map<String, TypeInformation<?>> arguments) {
            return Types.MAP(Types.STRING, Types.POJO(Visit.class));
        }
    }
}
