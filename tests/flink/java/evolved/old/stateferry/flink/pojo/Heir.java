package stateferry.flink.pojo;

/** A subclass with a field that gets another type. */
public class Heir extends Clan {
    public long age;
}
