package stateferry.flink.pojo;

/** It has lost a field by Avro and its class. */
public class Discards {
    public long total;
}
