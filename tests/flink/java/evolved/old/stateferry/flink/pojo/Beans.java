package stateferry.flink.pojo;

/** Its fields will be hidden. */
public class Beans {
    public String name;
    public long total;
}
