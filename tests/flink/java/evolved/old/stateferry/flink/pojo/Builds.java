package stateferry.flink.pojo;

/** It will have a constructor. */
public class Builds {
    public String name;
    public long total;
}
