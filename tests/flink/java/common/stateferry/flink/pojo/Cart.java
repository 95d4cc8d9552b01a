package stateferry.flink.pojo;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** A POJO with collections of POJOs and enums: by Kryo in Flink 1, by serializers of their own in Flink 2. */
@NullParts
public class Cart {
    public String owner;
    public List<Item> items;
    public Map<String, Item> byName;
    public Collection<Address> stops;
    public List<Color> colors;
    public Map<Color, Long> counts;
    public Set<Color> marks;
    public long total;
}
