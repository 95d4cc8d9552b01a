package stateferry.flink.pojo;

/** The enum of a field loses a constant. */
public class Dulls {
    public Tone tone;
    public long total;
}
