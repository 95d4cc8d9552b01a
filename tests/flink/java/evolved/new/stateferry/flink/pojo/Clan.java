package stateferry.flink.pojo;

/** Its values may be of a subclass. */
@Subclasses(Heir.class)
public class Clan {
    public String name;
}
