package stateferry.flink.pojo;

import java.util.HashMap;

/** A map whose constructor puts entries: Kryo puts those that it reads into it. */
public class Stats extends HashMap<String, Double> {
    public Stats() {
        for (String name : new String[] {"a", "b", "", "ü"}) {
            put(name, 0.0);
        }
    }
}
