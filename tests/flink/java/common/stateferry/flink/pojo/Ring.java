package stateferry.flink.pojo;

import java.util.List;

/** A subclass of a subclass, with a collection of its own whose elements may be of subclasses, too. */
@NullParts
public class Ring extends Circle {
    public Color color;
    public List<Animal> inside;
}
