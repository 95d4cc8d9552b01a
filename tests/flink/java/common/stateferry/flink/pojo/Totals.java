package stateferry.flink.pojo;

import java.time.Instant;
import java.util.Map;

/** A POJO with maps, which Flink 1 gives to Kryo, and Flink 2 to its own serializer of maps that may be null. */
public class Totals {
    public Instant begun;
    public Map<String, Long> counts;
    public String name;
    public Map<Integer, String> notes;
    public long total;
}
