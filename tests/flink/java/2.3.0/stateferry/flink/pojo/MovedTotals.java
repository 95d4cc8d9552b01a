package stateferry.flink.pojo;

/** The POJO without its map. */
public class MovedTotals {
    public String name;
}
