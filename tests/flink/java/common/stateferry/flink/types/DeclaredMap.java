package stateferry.flink.types;

import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.function.Supplier;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.typeutils.TypeExtractor;
import stateferry.flink.types.Composites.MapKind;
import stateferry.flink.types.Composites.Size;

/**
 * A map as people declare it, by a {@code TypeHint} or a class: Flink's type extraction chooses the serializer.
 *
 * <p>{@code HintedMap<K,V>} is {@code TypeInformation.of(new TypeHint<Map<K, V>>() {})}, and {@code HashMap<K,V>},
 * {@code LinkedHashMap<K,V>} and {@code TreeMap<K,V>} are hints of these classes; {@code MapClass<K,V>} is
 * {@code Map.class}, {@code HashMapClass<K,V>} is {@code HashMap.class}. {@code AnyMap<K,V>} is {@code HintedMap} where
 * a job puts maps of several classes.
 */
final class DeclaredMap<K, V> extends MapKind<K, V> {
    private static final int SAME_OBJECT_ONE_IN = 4;

    private final Type declared;
    private final List<Supplier<Map<K, V>>> makers;

    private DeclaredMap(Kind<K> key, Kind<V> value, Size size, Type declared, List<Supplier<Map<K, V>>> makers) {
        super(key, value, size);
        this.declared = declared;
        this.makers = makers;
    }

    /** The kind of this name; null if it isn't a declaration of a map. */
    static <K, V> Kind<?> named(String name, List<Kind<?>> arguments, Size size) {
        List<Supplier<Map<K, V>>> makers = switch (name) {
            case "HintedMap", "MapClass", "HashMap", "HashMapClass" -> List.of(HashMap::new);
            case "LinkedHashMap" -> List.of(LinkedHashMap::new);
            case "TreeMap" -> List.of(TreeMap::new);
            case "AnyMap" -> List.of(HashMap::new, LinkedHashMap::new, TreeMap::new);
            default -> null;
        };
        if (makers == null) {
            return null;
        }
        @SuppressWarnings("unchecked")
        Kind<K> key = (Kind<K>) arguments.get(0);
        @SuppressWarnings("unchecked")
        Kind<V> value = (Kind<V>) arguments.get(1);
        Class<?> type = switch (name) {
            case "HashMap", "HashMapClass" -> HashMap.class;
            case "LinkedHashMap" -> LinkedHashMap.class;
            case "TreeMap" -> TreeMap.class;
            default -> Map.class;
        };
        Type declared = name.endsWith("Class") ? type : new Generic(type, key.declared(), value.declared());
        return new DeclaredMap<>(key, value, size, declared, makers);
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
        Map<K, V> out = makers.get(random.nextInt(makers.size())).get();
        List<V> earlier = new ArrayList<>();
        drawn.forEach((key, value) -> {
            boolean same = !earlier.isEmpty() && random.nextInt(SAME_OBJECT_ONE_IN) == 0;
            V chosen = same ? earlier.get(random.nextInt(earlier.size())) : value;
            earlier.add(chosen);
            out.put(key, chosen);
        });
        return out;
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
}
