package stateferry.flink.pojo;

/** It has a value by Avro that gets a field. */
public class Carries {
    public AvroGrows grows;
    public long id;
}
