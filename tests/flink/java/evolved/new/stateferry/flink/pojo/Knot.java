package stateferry.flink.pojo;

/** A class that has fields of its superclass. */
public class Knot extends Knotted {
    public Knotted other;
    public Knotted[] others;
    public long total;
}
