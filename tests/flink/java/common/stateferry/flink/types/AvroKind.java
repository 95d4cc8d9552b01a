package stateferry.flink.types;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.generic.IndexedRecord;
import org.apache.avro.specific.SpecificRecordBase;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.formats.avro.typeutils.AvroTypeInfo;
import org.apache.flink.formats.avro.typeutils.GenericRecordAvroTypeInfo;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.BinaryNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.BooleanNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.NullNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.TextNode;

/** Records of Avro's, drawn and shown by their schema. */
final class AvroKind<T extends IndexedRecord> extends Kind<T> {
    private static final int MOST_ELEMENTS = 4;
    private static final String ORDER = """
            {"type": "record", "name": "AvroOrder", "namespace": "stateferry.flink.avro", "fields": [
              {"name": "id", "type": "long"}, {"name": "count", "type": "int"}, {"name": "paid", "type": "boolean"},
              {"name": "weight", "type": "float"}, {"name": "price", "type": "double"},
              {"name": "note", "type": ["null", "string"], "default": null}, {"name": "raw", "type": "bytes"},
              {"name": "hash", "type": {"type": "fixed", "name": "Short", "size": 3}},
              {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "SENT", "LOST"]}},
              {"name": "day", "type": {"type": "int", "logicalType": "date"}},
              {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
                {"name": "article", "type": "string"}, {"name": "before", "type": ["null", "State"]},
                {"name": "tags", "type": {"type": "array", "items": "string"}}]}}},
              {"name": "totals", "type": {"type": "map", "values": ["null", "long"]}},
              {"name": "any", "type": ["string", "null", "long", "Line", {"type": "map", "values": "double"}]}]}
            """;

    private final TypeInformation<T> info;
    private final Schema schema;

    private AvroKind(TypeInformation<T> info, Schema schema) {
        this.info = info;
        this.schema = schema;
    }

    /** Null if the name is none of Avro's. */
    static Kind<?> named(String name) {
        return switch (name) {
            case "AvroOrder" -> {
                Schema schema = new Schema.Parser().parse(ORDER);
                yield new AvroKind<GenericRecord>(new GenericRecordAvroTypeInfo(schema), schema);
            }
            default -> ofClass(name);
        };
    }

    /** Null if the package of the tests' classes has none of this name that Avro's compiler could have made. */
    private static Kind<?> ofClass(String name) {
        try {
            Class<? extends SpecificRecordBase> type =
                    Class.forName("stateferry.flink.pojo." + name).asSubclass(SpecificRecordBase.class);
            return new AvroKind<>(new AvroTypeInfo<>(type), made(type).getSchema());
        } catch (ClassNotFoundException | ClassCastException e) {
            return null;
        }
    }

    private static SpecificRecordBase made(Class<? extends SpecificRecordBase> type) {
        try {
            return type.getDeclaredConstructor().newInstance();
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    @Override
    public TypeInformation<T> info() {
        return info;
    }

    @Override
    @SuppressWarnings("unchecked")
    protected T random(Random random) {
        Class<T> type = info.getTypeClass();
        boolean isGeneric = !SpecificRecordBase.class.isAssignableFrom(type);
        return (T) fill(
                isGeneric ? new GenericData.Record(schema) : made(type.asSubclass(SpecificRecordBase.class)), random);
    }

    @Override
    protected JsonNode json(T value) {
        return show(schema, value);
    }

    private static IndexedRecord fill(IndexedRecord record, Random random) {
        for (Schema.Field field : record.getSchema().getFields()) {
            record.put(field.pos(), draw(field.schema(), random));
        }
        return record;
    }

    private static Object draw(Schema schema, Random random) {
        return switch (schema.getType()) {
            case NULL -> null;
            case BOOLEAN -> random.nextBoolean();
            case INT -> random.nextInt();
            case LONG -> random.nextLong();
            case FLOAT -> (float) random.nextGaussian();
            case DOUBLE -> random.nextGaussian();
            case STRING -> Scalars.text(random, random.nextInt(9));
            case BYTES -> ByteBuffer.wrap(bytes(random, random.nextInt(9)));
            case FIXED -> new GenericData.Fixed(schema, bytes(random, schema.getFixedSize()));
            case ENUM -> new GenericData.EnumSymbol(
                    schema, schema.getEnumSymbols().get(random.nextInt(schema.getEnumSymbols().size())));
            case UNION -> draw(schema.getTypes().get(random.nextInt(schema.getTypes().size())), random);
            case RECORD -> fill(new GenericData.Record(schema), random);
            case ARRAY -> {
                List<Object> out = new ArrayList<>();
                for (int n = random.nextInt(MOST_ELEMENTS + 1); n > 0; n--) {
                    out.add(draw(schema.getElementType(), random));
                }
                // More elements than seven bits count, now and then.
                for (int n = random.nextInt(50) == 0 && !out.isEmpty() ? 150 : 0; n > 0; n--) {
                    out.add(out.get(0));
                }
                yield out;
            }
            case MAP -> {
                Map<String, Object> out = new TreeMap<>();
                for (int n = random.nextInt(MOST_ELEMENTS + 1); n > 0; n--) {
                    out.put(Scalars.text(random, 3), draw(schema.getValueType(), random));
                }
                yield out;
            }
        };
    }

    private static byte[] bytes(Random random, int length) {
        byte[] out = new byte[length];
        random.nextBytes(out);
        return out;
    }

    private static JsonNode show(Schema schema, Object value) {
        return switch (schema.getType()) {
            case NULL -> NullNode.instance;
            case BOOLEAN -> BooleanNode.valueOf((Boolean) value);
            case INT -> Json.NODES.numberNode((Integer) value);
            case LONG -> Json.NODES.numberNode((Long) value);
            case FLOAT -> Json.number((float) (Float) value);
            case DOUBLE -> Json.number((double) (Double) value);
            case STRING, ENUM -> TextNode.valueOf(value.toString());
            case BYTES -> {
                byte[] out = new byte[((ByteBuffer) value).remaining()];
                ((ByteBuffer) value).duplicate().get(out);
                yield BinaryNode.valueOf(out);
            }
            case FIXED -> BinaryNode.valueOf(((GenericData.Fixed) value).bytes());
            case UNION -> showUnion(schema, value);
            case RECORD -> {
                ObjectNode out = Json.NODES.objectNode();
                for (Schema.Field field : schema.getFields()) {
                    out.set(field.name(), show(field.schema(), ((IndexedRecord) value).get(field.pos())));
                }
                yield out;
            }
            case ARRAY -> {
                ArrayNode out = Json.NODES.arrayNode();
                ((List<?>) value).forEach(element -> out.add(show(schema.getElementType(), element)));
                yield out;
            }
            case MAP -> {
                ObjectNode out = Json.NODES.objectNode();
                ((Map<?, ?>) value).forEach((k, v) -> out.set(k.toString(), show(schema.getValueType(), v)));
                yield out;
            }
        };
    }

    /** With the name of its type, as Avro's own JSON has it, unless null is the only other type. */
    private static JsonNode showUnion(Schema schema, Object value) {
        if (value == null) {
            return NullNode.instance;
        }
        Schema branch = schema.getTypes().get(GenericData.get().resolveUnion(schema, value));
        JsonNode shown = show(branch, value);
        boolean onlyOrNull = schema.isNullable() && schema.getTypes().size() == 2;
        return onlyOrNull ? shown : Json.NODES.objectNode().set(branch.getFullName(), shown);
    }
}
