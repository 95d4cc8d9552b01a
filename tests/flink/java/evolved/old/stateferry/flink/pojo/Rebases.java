package stateferry.flink.pojo;

/** Its superclass gets another name. */
public class Rebases extends OldBase {
    public long total;
}
