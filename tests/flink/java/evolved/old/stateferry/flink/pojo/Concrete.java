package stateferry.flink.pojo;

/** A list gets a class. */
public class Concrete {
    public java.util.List<String> all;
    public long total;
}
