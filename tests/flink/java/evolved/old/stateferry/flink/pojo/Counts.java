package stateferry.flink.pojo;

/** It becomes an enum. */
public class Counts {
    public long total;
}
