package stateferry.flink.pojo;

/** An abstract class that Flink takes for a POJO: all its values are of subclasses. */
@Subclasses({Circle.class, Ring.class})
public abstract class Shape {
    public String label;
}
