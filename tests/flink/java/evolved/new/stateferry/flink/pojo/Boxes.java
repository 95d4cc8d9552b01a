package stateferry.flink.pojo;

/** A field has become an object. */
public class Boxes {
    public String name;
    public Integer total;
}
