package stateferry.flink.pojo;

/** The superclass. */
public class Above {
    public String name;
}
