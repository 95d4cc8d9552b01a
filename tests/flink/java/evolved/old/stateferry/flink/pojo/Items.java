package stateferry.flink.pojo;

/** The elements of a list get another type. */
public class Items {
    public java.util.List<String> all;
    public long total;
}
