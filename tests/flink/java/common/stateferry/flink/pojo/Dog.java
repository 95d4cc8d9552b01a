package stateferry.flink.pojo;

/** A subclass that jobs may register. */
public class Dog extends Animal {
    public long bites;
}
