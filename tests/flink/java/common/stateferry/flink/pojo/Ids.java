package stateferry.flink.pojo;

import java.time.LocalDate;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;

/** A POJO with collections of objects that each Flink gives to Kryo. */
@NullParts
public class Ids {
    public List<UUID> list;
    public Map<String, UUID> byName;
    public Map<UUID, Long> counts;
    public Set<UUID> set;
    public List<Opaque> others;
    public List<LocalDate> days;
    public List<Double> numbers;
    public String name;
}
