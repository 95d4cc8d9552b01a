package stateferry.flink.pojo;

import java.util.Map;

/** A POJO whose map moves out of it while the job moves to Flink 2. */
public class MovedTotals {
    public Map<String, Long> counts;
    public String name;
}
