package stateferry.flink.pojo;

/** It has a value by Avro that Flink refuses. */
public class Holds {
    public AvroNarrows narrows;
    public long id;
}
