package stateferry.flink.pojo;

/** A subclass with a field of another type. */
public class Heir extends Clan {
    public int age;
}
