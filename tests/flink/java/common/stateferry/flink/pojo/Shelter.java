package stateferry.flink.pojo;

import java.util.List;
import java.util.Map;

/** A subclass with collections of its own: by Kryo in Flink 1, by serializers of their own in Flink 2. */
@NullParts
public class Shelter extends Kennel {
    public List<Animal> guests;
    public Map<String, Long> costs;
}
