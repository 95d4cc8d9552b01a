package stateferry.flink.pojo;

/** Flink can't make one. */
public class Builds {
    public String name;
    public long total;

    public Builds(String name) {
        this.name = name;
    }
}
