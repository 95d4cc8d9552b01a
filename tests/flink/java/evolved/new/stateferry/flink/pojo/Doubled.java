package stateferry.flink.pojo;

/** A superclass that has a field of its subclass. */
public class Doubled {
    public String name;
    public long total;
}
