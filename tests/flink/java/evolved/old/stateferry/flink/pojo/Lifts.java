package stateferry.flink.pojo;

/** A field will move to the superclass. */
public class Lifts extends Above {
    public long total;
}
