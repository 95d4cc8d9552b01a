package stateferry.flink.pojo;

import java.util.Map;

/** A POJO with a map beside POJOs with fields by Kryo. */
public class VisitTotals {
    public Cart cart;
    public Map<String, Long> counts;
    public Visit last;
    public long total;
}
