package stateferry.flink.pojo;

import java.util.HashMap;
import java.util.Map;

/** A map whose constructor puts entries: Kryo puts those that it reads into it. */
public class Stats extends HashMap<String, Double> {
    private static final Map<String, Double> NONE = Map.of("a", 0.0, "b", 0.0, "", 0.0, "ü", 0.0);

    public Stats() {
        super(NONE);
    }
}
