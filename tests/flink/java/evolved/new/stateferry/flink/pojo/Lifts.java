package stateferry.flink.pojo;

/** A field has moved to the superclass. */
public class Lifts extends Above {
    public int other;
}
