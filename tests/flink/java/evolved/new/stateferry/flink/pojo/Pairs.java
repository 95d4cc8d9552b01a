package stateferry.flink.pojo;

/** What is in a tuple has another type. */
public class Pairs {
    public org.apache.flink.api.java.tuple.Tuple2<Long, Integer> pair;
    public long total;
}
