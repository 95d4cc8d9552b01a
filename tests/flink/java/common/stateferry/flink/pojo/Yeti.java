package stateferry.flink.pojo;

import java.util.List;
import java.util.Map;

/** A subclass of which there are no objects, with fields of which little can be said. */
public class Yeti extends Animal {
    /** No class has it. */
    public interface Legend {}

    public Legend legend;
    public Object anything;
    public Map<String, List<String>> nested;
}
