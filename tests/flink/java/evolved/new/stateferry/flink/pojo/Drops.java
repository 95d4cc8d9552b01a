package stateferry.flink.pojo;

/** It has no superclass, and lacks its field. */
public class Drops {
    public long total;
}
