package stateferry.flink.pojo;

/** A superclass that will have another name. */
public class OldBase {
    public String name;
}
