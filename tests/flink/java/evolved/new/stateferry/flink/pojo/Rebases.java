package stateferry.flink.pojo;

/** Its superclass has another name. */
public class Rebases extends NewBase {
    public long total;
}
