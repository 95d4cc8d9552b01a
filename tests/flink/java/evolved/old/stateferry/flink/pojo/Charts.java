package stateferry.flink.pojo;

/** A list becomes a map. */
public class Charts {
    public java.util.List<String> all;
    public long total;
}
