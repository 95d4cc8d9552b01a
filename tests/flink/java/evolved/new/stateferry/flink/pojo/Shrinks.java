package stateferry.flink.pojo;

/** It has lost a field. */
public class Shrinks {
    public long total;
}
