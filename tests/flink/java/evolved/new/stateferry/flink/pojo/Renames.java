package stateferry.flink.pojo;

/** A field has got another name. */
public class Renames {
    public String name;
    public long sum;
}
