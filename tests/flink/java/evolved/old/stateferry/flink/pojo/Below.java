package stateferry.flink.pojo;

/** A superclass that loses a field. */
public class Below {
    public String name;
    public long total;
}
