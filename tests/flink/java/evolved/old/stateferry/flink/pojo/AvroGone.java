package stateferry.flink.pojo;

import org.apache.avro.AvroRuntimeException;
import org.apache.avro.Schema;
import org.apache.avro.specific.SpecificRecordBase;

/** The new job lacks it. */
public final class AvroGone extends SpecificRecordBase {
    public static final Schema SCHEMA$ = new Schema.Parser().parse(
            "{\"type\": \"record\", \"name\": \"AvroGone\", \"namespace\": \"stateferry.flink.pojo\", "
                    + "\"fields\": [{\"name\": \"name\", \"type\": \"string\"}, {\"name\": \"total\", \"type\": \"long\"}]}");

    public CharSequence name;
    public long total;

    @Override
    public Schema getSchema() {
        return SCHEMA$;
    }

    @Override
    public Object get(int field) {
        return switch (field) {
            case 0 -> name;
            case 1 -> total;
            default -> throw new AvroRuntimeException("expected a field of the schema, found " + field);
        };
    }

    @Override
    public void put(int field, Object content) {
        switch (field) {
            case 0 -> name = (CharSequence) content;
            case 1 -> total = (Long) content;
            default -> throw new AvroRuntimeException("expected a field of the schema, found " + field);
        }
    }
}
