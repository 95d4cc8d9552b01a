package stateferry.flink.pojo;

/** A class with collections. */
public class Collects {
    public java.util.List<String> names;
    public java.util.Set<Long> ids;
    public java.util.Map<String, Long> counts;
    public long total;
}
