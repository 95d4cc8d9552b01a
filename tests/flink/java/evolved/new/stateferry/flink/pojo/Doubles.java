package stateferry.flink.pojo;

/** Its superclass has its field too. */
public class Doubles extends Doubled {
    public long total;
}
