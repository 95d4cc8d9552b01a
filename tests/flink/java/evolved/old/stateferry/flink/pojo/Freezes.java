package stateferry.flink.pojo;

/** It becomes a record. */
public class Freezes {
    public String name;
    public long total;
}
