package stateferry.flink.pojo;

/** Its superclass gets its field too. */
public class Doubles extends Doubled {
    public long total;
}
