package stateferry.flink.pojo;

import java.util.List;

/** A POJO of whose values some are of a subclass that has collections of its own. */
@NullParts
@Subclasses(Shelter.class)
public class Kennel {
    public String place;
    public List<String> names;
}
