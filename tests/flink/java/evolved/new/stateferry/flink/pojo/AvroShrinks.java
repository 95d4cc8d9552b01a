package stateferry.flink.pojo;

import org.apache.avro.AvroRuntimeException;
import org.apache.avro.Schema;
import org.apache.avro.specific.SpecificRecordBase;

/** It loses a field, and has the others in another order. */
public final class AvroShrinks extends SpecificRecordBase {
    public static final Schema SCHEMA$ = new Schema.Parser().parse(
            "{\"type\": \"record\", \"name\": \"AvroShrinks\", \"namespace\": \"stateferry.flink.pojo\", "
                    + "\"fields\": [{\"name\": \"total\", \"type\": \"long\"}, {\"name\": \"name\", \"type\": \"string\"}]}");

    public long total;
    public CharSequence name;

    @Override
    public Schema getSchema() {
        return SCHEMA$;
    }

    @Override
    public Object get(int field) {
        return switch (field) {
            case 0 -> total;
            case 1 -> name;
            default -> throw new AvroRuntimeException("expected a field of the schema, found " + field);
        };
    }

    @Override
    public void put(int field, Object content) {
        switch (field) {
            case 0 -> total = (Long) content;
            case 1 -> name = (CharSequence) content;
            default -> throw new AvroRuntimeException("expected a field of the schema, found " + field);
        }
    }
}
