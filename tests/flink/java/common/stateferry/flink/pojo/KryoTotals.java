package stateferry.flink.pojo;

import java.util.HashMap;

/** A POJO with maps that every version of Flink gives to Kryo. */
@Subclasses(ShopKryoTotals.class)
public class KryoTotals {
    public HashMap<Integer, String> before;
    public HashMap<String, Long> counts;
    public Long last;
    public HashMap<Long, Double> rates;
}
