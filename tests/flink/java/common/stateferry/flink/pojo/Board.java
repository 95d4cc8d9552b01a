package stateferry.flink.pojo;

import java.util.List;
import java.util.Map;

/** A POJO with a map that every Flink gives to Kryo, because its type arguments have type arguments. */
@NullParts
public class Board {
    public String name;
    public Map<String, List<Long>> lines;
}
