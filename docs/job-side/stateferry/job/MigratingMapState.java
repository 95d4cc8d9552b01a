package stateferry.job;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.ValueState;

/**
 * A map state that moves each key from a {@code ValueState<Map>} when the job first touches the key.
 *
 * <p>Copy this file into your job and change its package; it needs nothing but Flink. Create the three states in
 * {@code open} and wrap them:
 *
 * <pre>{@code
 * carts = new MigratingMapState<>(
 *         getRuntimeContext().getState(mainState),
 *         getRuntimeContext().getMapState(newMainState),
 *         getRuntimeContext().getState(isMigratedState));
 * }</pre>
 *
 * <p>The flag says that a key has been moved, by this class or by Stateferry. A key without it is moved before anything
 * else is done with it: entries of the old map that have no row become rows, the flag is set, the old map is cleared. A
 * row that is there already stays. When no old map is left, use the new state by itself and delete this class.
 *
 * <p>Under time to live each row that is moved gets a new timestamp, because Flink's state API writes the present time
 * with every update.
 */
public final class MigratingMapState<UK, UV> implements MapState<UK, UV> {
    private final ValueState<Map<UK, UV>> old;
    private final MapState<UK, UV> rows;
    private final ValueState<Boolean> isMigrated;

    public MigratingMapState(ValueState<Map<UK, UV>> old, MapState<UK, UV> rows, ValueState<Boolean> isMigrated) {
        this.old = old;
        this.rows = rows;
        this.isMigrated = isMigrated;
    }

    /** Moves the current key if it hasn't been moved; returns the new state. */
    public MapState<UK, UV> migrated() throws Exception {
        if (!Boolean.TRUE.equals(isMigrated.value())) {
            Map<UK, UV> map = old.value();
            if (map != null) {
                for (Map.Entry<UK, UV> entry : map.entrySet()) {
                    if (!rows.contains(entry.getKey())) {
                        rows.put(entry.getKey(), entry.getValue());
                    }
                }
            }
            // Also after the flag has expired: without it, a row that was removed would come back. And also if the map is
            // null, as Flink 2 reads an empty map of Kryo 2: a run would find a map of a key whose flag is set.
            old.clear();
            isMigrated.update(true);
        }
        return rows;
    }

    /** The whole map, as {@code ValueState.value()} of the old state: null if there is none. */
    public Map<UK, UV> value() throws Exception {
        Map<UK, UV> map = new HashMap<>();
        for (Map.Entry<UK, UV> entry : migrated().entries()) {
            map.put(entry.getKey(), entry.getValue());
        }
        return map.isEmpty() ? null : map;
    }

    /**
     * Replaces the whole map, as {@code ValueState.update} of the old state. Entries that left the map are removed. Each
     * entry is written, so under time to live each gets the present time, as the whole map did.
     */
    public void update(Map<UK, UV> map) throws Exception {
        if (map == null) {
            clear();
            return;
        }
        // Of a key that isn't moved, nothing of the old map stays.
        old.clear();
        if (!Boolean.TRUE.equals(isMigrated.value())) {
            isMigrated.update(true);
        }
        List<UK> gone = new ArrayList<>();
        for (UK key : rows.keys()) {
            if (!map.containsKey(key)) {
                gone.add(key);
            }
        }
        for (UK key : gone) {
            rows.remove(key);
        }
        rows.putAll(map);
    }

    @Override
    public UV get(UK key) throws Exception {
        return migrated().get(key);
    }

    @Override
    public void put(UK key, UV value) throws Exception {
        migrated().put(key, value);
    }

    @Override
    public void putAll(Map<UK, UV> map) throws Exception {
        migrated().putAll(map);
    }

    @Override
    public void remove(UK key) throws Exception {
        migrated().remove(key);
    }

    @Override
    public boolean contains(UK key) throws Exception {
        return migrated().contains(key);
    }

    @Override
    public Iterable<Map.Entry<UK, UV>> entries() throws Exception {
        return migrated().entries();
    }

    @Override
    public Iterable<UK> keys() throws Exception {
        return migrated().keys();
    }

    @Override
    public Iterable<UV> values() throws Exception {
        return migrated().values();
    }

    @Override
    public Iterator<Map.Entry<UK, UV>> iterator() throws Exception {
        return migrated().iterator();
    }

    @Override
    public boolean isEmpty() throws Exception {
        return migrated().isEmpty();
    }

    /** Removes all there is of the current key. */
    @Override
    public void clear() {
        old.clear();
        rows.clear();
        isMigrated.clear();
    }
}
