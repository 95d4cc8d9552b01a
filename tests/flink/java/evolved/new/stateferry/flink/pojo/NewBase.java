package stateferry.flink.pojo;

/** The superclass by its new name. */
public class NewBase {
    public String name;
}
