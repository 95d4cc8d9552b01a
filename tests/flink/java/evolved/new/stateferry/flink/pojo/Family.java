package stateferry.flink.pojo;

/** Its values may be of a subclass. */
@Subclasses(Child.class)
public class Family {
    public String name;
}
