package stateferry.flink.pojo;

/** It loses a field whose enum loses a constant. */
public class Mutes {
    public Tone tone;
    public long total;
}
