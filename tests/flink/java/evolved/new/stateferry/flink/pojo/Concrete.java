package stateferry.flink.pojo;

/** A list has a class. */
public class Concrete {
    public java.util.ArrayList<String> all;
    public long total;
}
