package stateferry.flink.pojo;

/** It loses all fields. */
public class Empties {
    public long total;
}
