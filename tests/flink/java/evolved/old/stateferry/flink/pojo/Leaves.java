package stateferry.flink.pojo;

/** It will have no superclass. */
public class Leaves extends LeftBase {
    public long total;
}
