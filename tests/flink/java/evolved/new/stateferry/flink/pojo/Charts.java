package stateferry.flink.pojo;

/** A list has become a map. */
public class Charts {
    public java.util.Map<Long, Long> all;
    public long total;
}
