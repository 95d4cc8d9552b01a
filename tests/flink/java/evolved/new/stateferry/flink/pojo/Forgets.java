package stateferry.flink.pojo;

/** A field that is not stored. */
public class Forgets {
    public transient String name;
    public long total;
}
