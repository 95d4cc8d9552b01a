package stateferry.flink.pojo;

/** It loses a field by Avro and its class. */
public class Discards {
    public AvroGone gone;
    public long total;
}
