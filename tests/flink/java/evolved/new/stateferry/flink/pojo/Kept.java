package stateferry.flink.pojo;

/** Flink can store it now. */
public class Kept {
    public String text;
}
