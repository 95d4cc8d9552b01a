package stateferry.flink.pojo;

/** A subclass that no job registers. */
public class Cat extends Animal {
    public Integer lives;
    public Color fur;
}
