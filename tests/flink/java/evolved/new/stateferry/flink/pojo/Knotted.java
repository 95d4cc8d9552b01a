package stateferry.flink.pojo;

/** The superclass. */
public class Knotted {
    public String name;
}
