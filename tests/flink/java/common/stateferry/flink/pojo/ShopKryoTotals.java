package stateferry.flink.pojo;

/** A subclass with a field before the maps. */
public class ShopKryoTotals extends KryoTotals {
    public String at;
}
