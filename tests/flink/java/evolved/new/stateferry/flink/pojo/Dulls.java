package stateferry.flink.pojo;

/** The enum of a field has lost a constant. */
public class Dulls {
    public Tone tone;
    public long total;
}
