package stateferry.flink.pojo;

import org.apache.avro.AvroRuntimeException;
import org.apache.avro.Schema;
import org.apache.avro.specific.SpecificRecordBase;

/** A field has another name, and a default. */
public final class AvroRenames extends SpecificRecordBase {
    public static final Schema SCHEMA$ = new Schema.Parser().parse(
            "{\"type\": \"record\", \"name\": \"AvroRenames\", \"namespace\": \"stateferry.flink.pojo\", "
                    + "\"fields\": [{\"name\": \"name\", \"type\": \"string\"}, {\"name\": \"sum\", \"type\": \"long\", "
                    + "\"default\": 0}]}");

    public CharSequence name;
    public long sum;

    @Override
    public Schema getSchema() {
        return SCHEMA$;
    }

    @Override
    public Object get(int field) {
        return switch (field) {
            case 0 -> name;
            case 1 -> sum;
            default -> throw new AvroRuntimeException("expected a field of the schema, found " + field);
        };
    }

    @Override
    public void put(int field, Object content) {
        switch (field) {
            case 0 -> name = (CharSequence) content;
            case 1 -> sum = (Long) content;
            default -> throw new AvroRuntimeException("expected a field of the schema, found " + field);
        }
    }
}
