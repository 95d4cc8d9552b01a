package stateferry.flink.types;

import com.google.gson.internal.LinkedTreeMap;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.lang.reflect.WildcardType;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.Hashtable;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.function.UnaryOperator;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.typeutils.TypeExtractor;
import stateferry.flink.pojo.ByText;
import stateferry.flink.pojo.Cap;
import stateferry.flink.pojo.Color;
import stateferry.flink.pojo.Counts;
import stateferry.flink.pojo.Json;
import stateferry.flink.pojo.Lru;
import stateferry.flink.types.Composites.MapKind;
import stateferry.flink.types.Composites.Size;

/**
 * A map as people declare it, by a {@code TypeHint} or a class: Flink's type extraction chooses the serializer.
 *
 * <p>{@code HintedMap<K,V>} is {@code TypeInformation.of(new TypeHint<Map<K, V>>() {})}, {@code WildMap<K,V>} that of
 * {@code Map<K, ? extends V>}, and {@code HashMap<K,V>},
 * {@code LinkedHashMap<K,V>}, {@code TreeMap<K,V>} and so on are hints of these classes; {@code MapClass<K,V>} is
 * {@code Map.class}, {@code HashMapClass<K,V>} is {@code HashMap.class}. {@code AnyMap<K,V>} is {@code HintedMap} where
 * a job puts maps of several classes, {@code AnyHashMap<K,V>} is {@code HashMap} where it puts subclasses as well, and
 * {@code SortedView<K,V>} is {@code SortedMap} where it puts views of such. {@code UtilMap<K,V>} is {@code MapClass} where it puts what the JDK's methods return.
 * {@code LruMap<K,V>}, {@code CapMap<K,V>}, {@code JsonMap<K,V>} and {@code CountsMapClass<String,Long>} are classes of the job, {@code GsonMap<K,V>} is
 * Gson's; {@code BraceMap<K,V>} is {@code HashMap<K,V>} where it puts objects of an anonymous class. A test that has these as values
 * of a map calls them {@code Lru}, {@code Json}, {@code CountsClass} and {@code Gson}. {@code TextMap<K,V>}, as a value
 * {@code TextSorted}, is {@code TreeMap<K,V>} with a comparator of the job's own.
 */
final class DeclaredMap<K, V> extends MapKind<K, V> {
    private static final int SAME_OBJECT_ONE_IN = 4;

    private final Type declared;
    private final List<UnaryOperator<Map<K, V>>> makers;

    private DeclaredMap(Kind<K> key, Kind<V> value, Size size, Type declared, List<UnaryOperator<Map<K, V>>> makers) {
        super(key, value, size);
        this.declared = declared;
        this.makers = makers;
    }

    /** The kind of this name; null if it isn't a declaration of a map. */
    static <K, V> Kind<?> named(String name, List<Kind<?>> arguments, Size size) {
        List<UnaryOperator<Map<K, V>>> makers = makers(name);
        if (makers == null) {
            return null;
        }
        @SuppressWarnings("unchecked")
        Kind<K> key = (Kind<K>) arguments.get(0);
        @SuppressWarnings("unchecked")
        Kind<V> value = (Kind<V>) arguments.get(1);
        Class<?> type = switch (name) {
            case "HashMap", "HashMapClass", "AnyHashMap", "BraceMap" -> HashMap.class;
            case "LruMap", "Lru" -> Lru.class;
            case "JsonMap", "Json" -> Json.class;
            case "CapMap" -> Cap.class;
            case "CountsMapClass", "CountsClass" -> Counts.class;
            case "GsonMap", "Gson" -> LinkedTreeMap.class;
            case "LinkedHashMap" -> LinkedHashMap.class;
            case "TreeMap", "ReverseTreeMap", "TextMap", "TextSorted" -> TreeMap.class;
            case "SortedMap", "SortedView" -> SortedMap.class;
            case "EnumMap" -> EnumMap.class;
            case "IdentityHashMap" -> IdentityHashMap.class;
            case "Hashtable" -> Hashtable.class;
            case "ConcurrentMap" -> ConcurrentMap.class;
            case "ConcurrentHashMap" -> ConcurrentHashMap.class;
            case "ConcurrentSkipListMap" -> ConcurrentSkipListMap.class;
            default -> Map.class;
        };
        boolean raw = name.endsWith("Class") || name.equals("UtilMap");
        Type ofValue = name.equals("WildMap") ? new Wild(value.declared()) : value.declared();
        Type declared = raw ? type : new Generic(type, key.declared(), ofValue);
        return new DeclaredMap<>(key, value, size, declared, makers);
    }

    private static <K, V> List<UnaryOperator<Map<K, V>>> makers(String name) {
        return switch (name) {
            case "HintedMap", "WildMap", "MapClass", "HashMap", "HashMapClass" -> List.of(HashMap::new);
            case "LinkedHashMap" -> List.of(LinkedHashMap::new);
            case "LruMap", "Lru" -> List.of(map -> filled(new Lru<>(), map));
            case "JsonMap", "Json" -> List.of(map -> filled(new Json<>(), map));
            case "CapMap" -> List.of(map -> filled(new Cap<>(1000), map));
            case "CountsMapClass", "CountsClass" -> List.of(DeclaredMap::counts);
            case "GsonMap", "Gson" -> List.of(map -> filled(new LinkedTreeMap<>(), map));
            case "BraceMap" -> List.of(map -> new HashMap<>(map) {});
            case "TreeMap", "SortedMap" -> List.of(TreeMap::new);
            case "ReverseTreeMap" -> List.of(DeclaredMap::reversed);
            case "TextMap", "TextSorted" -> List.of(map -> filled(new TreeMap<>(new ByText()), map));
            case "Hashtable" -> List.of(Hashtable::new);
            case "ConcurrentHashMap", "ConcurrentMap" -> List.of(ConcurrentHashMap::new);
            case "ConcurrentSkipListMap" -> List.of(ConcurrentSkipListMap::new);
            case "AnyMap" -> List.of(HashMap::new, LinkedHashMap::new, TreeMap::new);
            case "AnyHashMap" -> List.of(HashMap::new, LinkedHashMap::new);
            case "EnumMap" -> List.of(DeclaredMap::ofColors);
            case "IdentityHashMap" -> List.of(IdentityHashMap::new);
            case "SortedView" -> List.of(
                    map -> Collections.unmodifiableSortedMap(new TreeMap<>(map)),
                    map -> Collections.synchronizedNavigableMap(new TreeMap<>(map)),
                    map -> new TreeMap<>(map).descendingMap(),
                    map -> map.isEmpty() ? new TreeMap<>(map) : new TreeMap<>(map).tailMap(new TreeMap<>(map).firstKey()));
            case "UtilMap" -> List.of(
                    Collections::unmodifiableMap,
                    Collections::synchronizedMap,
                    Map::copyOf,
                    DeclaredMap::reversed,
                    map -> map.isEmpty() ? Collections.emptyMap() : map,
                    map -> map.size() == 1 ? Collections.singletonMap(only(map).getKey(), only(map).getValue()) : map);
            default -> null;
        };
    }

    private static <K, V> Map<K, V> filled(Map<K, V> empty, Map<K, V> with) {
        empty.putAll(with);
        return empty;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static <K, V> Map<K, V> counts(Map<K, V> map) {
        return filled((Map) new Counts(), map);
    }

    private static <K, V> Map<K, V> reversed(Map<K, V> map) {
        Map<K, V> out = new TreeMap<>(Collections.reverseOrder());
        out.putAll(map);
        return out;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static <K, V> Map<K, V> ofColors(Map<K, V> map) {
        Map<K, V> out = new EnumMap(Color.class);
        out.putAll(map);
        return out;
    }

    private static <K, V> Map.Entry<K, V> only(Map<K, V> map) {
        return map.entrySet().iterator().next();
    }

    @Override
    Type declared() {
        return declared;
    }

    @Override
    @SuppressWarnings("unchecked")
    public TypeInformation<Map<K, V>> info() {
        return (TypeInformation<Map<K, V>>) TypeExtractor.createTypeInfo(declared);
    }

    /** Now and then a value is an object that is in the map already: Kryo refers back to it. */
    @Override
    protected Map<K, V> random(Random random) {
        Map<K, V> drawn = super.random(random);
        UnaryOperator<Map<K, V>> maker = makers.get(random.nextInt(makers.size()));
        Map<K, V> out = new LinkedHashMap<>();
        List<V> earlier = new ArrayList<>();
        drawn.forEach((key, value) -> {
            boolean same = !earlier.isEmpty() && random.nextInt(SAME_OBJECT_ONE_IN) == 0;
            V chosen = same ? earlier.get(random.nextInt(earlier.size())) : value;
            earlier.add(chosen);
            out.put(key, chosen);
        });
        return maker.apply(out);
    }

    /** A class with its type arguments, as Java's compiler would leave it in the hint's own class. */
    record Generic(Class<?> type, Type... arguments) implements ParameterizedType {
        @Override
        public Type[] getActualTypeArguments() {
            return arguments.clone();
        }

        @Override
        public Type getRawType() {
            return type;
        }

        @Override
        public Type getOwnerType() {
            return null;
        }
    }

    /** The wildcard {@code ? extends V}. */
    record Wild(Type bound) implements WildcardType {
        @Override
        public Type[] getUpperBounds() {
            return new Type[] {bound};
        }

        @Override
        public Type[] getLowerBounds() {
            return new Type[0];
        }
    }
}
