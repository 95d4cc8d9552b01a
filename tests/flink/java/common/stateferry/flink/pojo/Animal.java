package stateferry.flink.pojo;

/** A POJO whose values may be of a subclass: the dog is known to Flink in advance when a job registers it. */
@Subclasses({Dog.class, Cat.class})
public class Animal {
    public String name;
    public int legs;
}
