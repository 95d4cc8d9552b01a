package stateferry.flink.pojo;

/** A field that Flink can't reach. */
public class Hides {
    private String name;
    public long total;

    public String getName() {
        return name;
    }
}
