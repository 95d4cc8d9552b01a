package stateferry.flink.pojo;

/** A POJO with maps and lists that are classes of the job. */
@NullParts
public class Caches {
    public Lru<String, Long> hits;
    public Basket<String> names;
    public Json<Long, Double> rates;
}
