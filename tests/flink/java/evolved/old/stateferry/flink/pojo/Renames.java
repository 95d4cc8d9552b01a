package stateferry.flink.pojo;

/** A field gets another name. */
public class Renames {
    public String name;
    public long total;
}
