package stateferry.flink.pojo;

/** It has an enum. */
public class Shaded {
    public Shade shade;
    public long total;
}
