package stateferry.flink.types;

import java.lang.reflect.Field;
import java.lang.reflect.GenericArrayType;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.RecordComponent;
import java.lang.reflect.Type;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.typeutils.PojoTypeInfo;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import stateferry.flink.pojo.NullParts;
import stateferry.flink.pojo.Subclasses;

/** A class with public fields, with the subclasses its values may have. If Flink takes it for no POJO, it shows nothing. */
final class PojoKind<T> extends Kind<T> {
    private static final int NULL_ONE_IN = 5;
    private final Class<T> type;
    private final TypeInformation<T> info;
    private final List<FieldKind> fields = new ArrayList<>();

    private record FieldKind(Field field, Kind<?> kind) {}

    PojoKind(Class<T> type) {
        this.type = type;
        this.info = TypeInformation.of(type);
        if (!(info instanceof PojoTypeInfo<T> pojo)) {
            return;
        }
        for (int i = 0; i < pojo.getArity(); i++) {
            Field field = pojo.getPojoFieldAt(i).getField();
            Class<?> inner = field.getType().isArray() ? field.getType().getComponentType() : field.getType();
            if (inner.isAssignableFrom(type) && inner != Object.class) {
                // A value would go on without end, so such a field stays null.
                continue;
            }
            fields.add(new FieldKind(field, Kinds.parse(name(field.getGenericType()))));
        }
    }

    @Override
    public TypeInformation<T> info() {
        return info;
    }

    @Override
    @SuppressWarnings("unchecked")
    protected T random(Random random) {
        Subclasses subclasses = type.getDeclaredAnnotation(Subclasses.class);
        if (subclasses != null && (Modifier.isAbstract(type.getModifiers()) || random.nextBoolean())) {
            Class<?>[] classes = subclasses.value();
            return (T) new PojoKind<>(classes[random.nextInt(classes.length)]).random(random);
        }
        try {
            if (type.isRecord()) {
                return made(random);
            }
            T out = type.getDeclaredConstructor().newInstance();
            for (FieldKind field : fields) {
                boolean primitive = field.field.getType().isPrimitive();
                if (primitive || random.nextInt(NULL_ONE_IN) != 0) {
                    field.field.set(out, field.kind.draw(random));
                }
            }
            return out;
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    /** A record, whose fields can't be set. */
    private T made(Random random) throws ReflectiveOperationException {
        RecordComponent[] components = type.getRecordComponents();
        Class<?>[] types = new Class<?>[components.length];
        Object[] values = new Object[components.length];
        for (int i = 0; i < components.length; i++) {
            types[i] = components[i].getType();
            boolean isNull = !types[i].isPrimitive() && random.nextInt(NULL_ONE_IN) == 0;
            values[i] = isNull ? null : Kinds.parse(name(components[i].getGenericType())).draw(random);
        }
        return type.getDeclaredConstructor(types).newInstance(values);
    }

    @Override
    protected JsonNode json(T value) {
        if (value.getClass() != type) {
            ObjectNode out = Json.NODES.objectNode().put("@class", value.getClass().getName());
            return out.setAll((ObjectNode) new PojoKind<>(value.getClass()).show(value));
        }
        ObjectNode out = Json.NODES.objectNode();
        try {
            for (FieldKind field : fields) {
                field.field.setAccessible(true);
                out.set(field.field.getName(), field.kind.show(field.field.get(value)));
            }
        } catch (IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
        return out;
    }

    private String name(Type type) {
        if (type instanceof ParameterizedType generic) {
            String ending = this.type.isAnnotationPresent(NullParts.class) ? "?" : "";
            List<String> names = new ArrayList<>();
            for (Type argument : generic.getActualTypeArguments()) {
                names.add(name(argument) + ending);
            }
            return ((Class<?>) generic.getRawType()).getSimpleName() + "<" + String.join(",", names) + ">";
        }
        if (type instanceof GenericArrayType) {
            throw new IllegalArgumentException("expected no array with type arguments in a POJO's field, found " + type);
        }
        return type == java.sql.Timestamp.class ? "SqlTimestamp" : ((Class<?>) type).getSimpleName();
    }
}
