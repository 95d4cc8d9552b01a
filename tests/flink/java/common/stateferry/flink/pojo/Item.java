package stateferry.flink.pojo;

import java.util.List;
import java.util.Map;
import java.util.UUID;

/** A POJO for collections, with collections of its own. */
@NullParts
public class Item {
    public String name;
    public double price;
    public Color color;
    public UUID id;
    public Address home;
    public List<Address> stops;
    public Map<String, Long> counts;
}
