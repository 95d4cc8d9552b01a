package stateferry.flink.pojo;

/** A field will be hidden. */
public class Hides {
    public String name;
    public long total;
}
