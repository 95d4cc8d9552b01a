package stateferry.flink.pojo;

import java.util.List;
import java.util.Map;

/** A POJO with collections of arrays. */
@NullParts
public class Sheet {
    public List<String[]> lines;
    public Map<String, Long[]> totals;
    public List<double[]> numbers;
}
