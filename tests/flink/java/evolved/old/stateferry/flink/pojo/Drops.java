package stateferry.flink.pojo;

/** It will have no superclass, and lack its field. */
public class Drops extends LeftBase {
    public long total;
}
