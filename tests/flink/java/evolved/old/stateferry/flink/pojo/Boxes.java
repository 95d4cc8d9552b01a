package stateferry.flink.pojo;

/** A field becomes an object. */
public class Boxes {
    public String name;
    public int total;
}
