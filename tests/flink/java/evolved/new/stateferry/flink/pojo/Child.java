package stateferry.flink.pojo;

/** A subclass that has got a field. */
public class Child extends Family {
    public long age;
    public String nick;
}
