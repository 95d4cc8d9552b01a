package stateferry.flink.pojo;

import org.apache.avro.AvroRuntimeException;
import org.apache.avro.Schema;
import org.apache.avro.specific.SpecificRecordBase;

/** A class as Avro's compiler makes one from a schema. */
public final class AvroReading extends SpecificRecordBase {
    public static final Schema SCHEMA$ = new Schema.Parser().parse(
            "{\"type\": \"record\", \"name\": \"AvroReading\", \"namespace\": \"stateferry.flink.pojo\", \"fields\": ["
                    + "{\"name\": \"sensor\", \"type\": \"string\"}, {\"name\": \"value\", \"type\": [\"null\", \"double\"]},"
                    + "{\"name\": \"at\", \"type\": \"long\"}]}");

    public CharSequence sensor;
    public Double value;
    public long at;

    @Override
    public Schema getSchema() {
        return SCHEMA$;
    }

    @Override
    public Object get(int field) {
        return switch (field) {
            case 0 -> sensor;
            case 1 -> value;
            case 2 -> at;
            default -> throw new AvroRuntimeException("expected a field of 0 to 2, found " + field);
        };
    }

    @Override
    public void put(int field, Object content) {
        switch (field) {
            case 0 -> sensor = (CharSequence) content;
            case 1 -> value = (Double) content;
            case 2 -> at = (Long) content;
            default -> throw new AvroRuntimeException("expected a field of 0 to 2, found " + field);
        }
    }
}
