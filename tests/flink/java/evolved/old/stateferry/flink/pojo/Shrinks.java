package stateferry.flink.pojo;

/** It loses a field. */
public class Shrinks {
    public String name;
    public long total;
}
