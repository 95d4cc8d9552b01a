package stateferry.flink.pojo;

import java.util.List;
import java.util.Map;

/** A POJO with collections in collections, which each Flink gives to Kryo. */
@NullParts
public class Shelf {
    public Map<String, List<Address>> places;
    public List<Map<String, Color>> colors;
    public Cart cart;
}
