package stateferry.flink.pojo;

/** A class that the new job has not. */
public class Gone {
    public String name;
}
