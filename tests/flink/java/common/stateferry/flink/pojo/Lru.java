package stateferry.flink.pojo;

import java.util.LinkedHashMap;
import java.util.Map;

/** A map that forgets its eldest entry, as people write a cache: Kryo writes its entries, and not its field. */
public class Lru<K, V> extends LinkedHashMap<K, V> {
    private int most = 1000;

    @Override
    protected boolean removeEldestEntry(Map.Entry<K, V> eldest) {
        return size() > most;
    }
}
