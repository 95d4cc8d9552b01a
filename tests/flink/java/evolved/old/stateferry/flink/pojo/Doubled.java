package stateferry.flink.pojo;

/** A superclass that gets a field of its subclass. */
public class Doubled {
    public String name;
}
