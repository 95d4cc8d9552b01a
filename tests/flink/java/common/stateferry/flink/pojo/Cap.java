package stateferry.flink.pojo;

import java.util.LinkedHashMap;
import java.util.Map;

/** A map that forgets its eldest entry; Kryo makes it without its constructor, so that it forgets all of them. */
public class Cap<K, V> extends LinkedHashMap<K, V> {
    private final int most;

    public Cap(int most) {
        this.most = most;
    }

    @Override
    protected boolean removeEldestEntry(Map.Entry<K, V> eldest) {
        return size() > most;
    }
}
