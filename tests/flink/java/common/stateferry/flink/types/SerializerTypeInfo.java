package stateferry.flink.types;

import java.util.Objects;
import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.serialization.SerializerConfig;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeutils.TypeSerializer;

/** Lets a serializer that has no type information of its own stand inside types that are composed of type information. */
final class SerializerTypeInfo<T> extends TypeInformation<T> {
    /** Makes the serializer; a function of the configuration because nested POJO serializers depend on it. */
    interface Maker<T> extends java.io.Serializable {
        TypeSerializer<T> make(SerializerConfig config);
    }

    private final Class<T> type;
    private final Maker<T> maker;

    @SuppressWarnings("unchecked")
    SerializerTypeInfo(Class<? super T> type, Maker<T> maker) {
        this.type = (Class<T>) type;
        this.maker = maker;
    }

    @Override
    public TypeSerializer<T> createSerializer(SerializerConfig config) {
        return maker.make(config);
    }

    /** Flink 1.20 declares this one abstract and prefers the other; Flink 2 doesn't know it. */
    public TypeSerializer<T> createSerializer(ExecutionConfig config) {
        return maker.make(config.getSerializerConfig());
    }

    @Override
    public boolean isBasicType() {
        return false;
    }

    @Override
    public boolean isTupleType() {
        return false;
    }

    @Override
    public int getArity() {
        return 1;
    }

    @Override
    public int getTotalFields() {
        return 1;
    }

    @Override
    public Class<T> getTypeClass() {
        return type;
    }

    @Override
    public boolean isKeyType() {
        return true;
    }

    @Override
    public String toString() {
        return "SerializerTypeInfo<" + type.getName() + ">";
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof SerializerTypeInfo && ((SerializerTypeInfo<?>) other).type == type;
    }

    @Override
    public int hashCode() {
        return Objects.hash(type);
    }

    @Override
    public boolean canEqual(Object other) {
        return other instanceof SerializerTypeInfo;
    }
}
