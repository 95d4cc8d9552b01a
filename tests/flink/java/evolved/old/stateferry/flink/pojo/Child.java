package stateferry.flink.pojo;

/** A subclass that gets a field. */
public class Child extends Family {
    public long age;
}
