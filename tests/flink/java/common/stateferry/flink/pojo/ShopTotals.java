package stateferry.flink.pojo;

/** A subclass with a field before the map. */
public class ShopTotals extends TypedTotals {
    public String at;
}
