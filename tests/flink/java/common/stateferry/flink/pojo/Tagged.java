package stateferry.flink.pojo;

import java.util.List;
import java.util.Map;

/** Collections as fields: Kryo in Flink 1, lists and maps of their own in Flink 2. */
public class Tagged {
    public String name;
    public List<String> tags;
    public Map<String, Long> counts;
}
