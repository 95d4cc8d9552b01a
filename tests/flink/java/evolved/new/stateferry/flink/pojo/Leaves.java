package stateferry.flink.pojo;

/** It has no superclass, and its field itself. */
public class Leaves {
    public String name;
    public long total;
}
