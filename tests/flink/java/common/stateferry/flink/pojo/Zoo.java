package stateferry.flink.pojo;

import java.util.List;
import java.util.Map;

/** A POJO with collections whose elements may be of subclasses of their class. */
@NullParts
public class Zoo {
    public String name;
    public List<Animal> animals;
    public Map<String, Animal> byName;
    public List<Shape> shapes;
    public Map<Color, Shape> byColor;
}
