package com.google.gson.internal;

import java.util.AbstractMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;

/** Stands for Gson's class of this name, of which Kryo sees as much: a map with a constructor without arguments. */
public final class LinkedTreeMap<K, V> extends AbstractMap<K, V> {
    private final Map<K, V> entries = new LinkedHashMap<>();

    @Override
    public V put(K key, V value) {
        return entries.put(key, value);
    }

    @Override
    public Set<Map.Entry<K, V>> entrySet() {
        return entries.entrySet();
    }
}
