package stateferry.flink.pojo;

import org.apache.avro.AvroRuntimeException;
import org.apache.avro.Schema;
import org.apache.avro.specific.SpecificRecordBase;

/** Its enum has another order. */
public final class AvroSorts extends SpecificRecordBase {
    public static final Schema SCHEMA$ = new Schema.Parser().parse(
            "{\"type\": \"record\", \"name\": \"AvroSorts\", \"namespace\": \"stateferry.flink.pojo\", "
                    + "\"fields\": [{\"name\": \"total\", \"type\": \"long\"}, {\"name\": \"suit\", \"type\": {\"type\": "
                    + "\"enum\", \"name\": \"Suit\", \"symbols\": [\"CLUB\", \"HEART\"]}}]}");

    public long total;
    public Object suit;

    @Override
    public Schema getSchema() {
        return SCHEMA$;
    }

    @Override
    public Object get(int field) {
        return switch (field) {
            case 0 -> total;
            case 1 -> suit;
            default -> throw new AvroRuntimeException("expected a field of the schema, found " + field);
        };
    }

    @Override
    public void put(int field, Object content) {
        switch (field) {
            case 0 -> total = (Long) content;
            case 1 -> suit = content;
            default -> throw new AvroRuntimeException("expected a field of the schema, found " + field);
        }
    }
}
