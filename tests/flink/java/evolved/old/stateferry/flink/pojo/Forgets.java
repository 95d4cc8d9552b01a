package stateferry.flink.pojo;

/** A field will not be stored. */
public class Forgets {
    public String name;
    public long total;
}
