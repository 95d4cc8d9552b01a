package stateferry.flink.pojo;

/** It becomes a list. */
public class Piles {
    public long total;
}
