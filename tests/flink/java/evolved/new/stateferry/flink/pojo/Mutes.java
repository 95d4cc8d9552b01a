package stateferry.flink.pojo;

/** It has lost a field. */
public class Mutes {
    public long total;
}
