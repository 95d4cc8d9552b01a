package stateferry.flink.pojo;

/** It has lost a field and its class. */
public class Sheds {
    public long total;
}
