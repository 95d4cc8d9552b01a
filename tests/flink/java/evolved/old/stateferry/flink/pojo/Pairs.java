package stateferry.flink.pojo;

/** What is in a tuple gets another type. */
public class Pairs {
    public org.apache.flink.api.java.tuple.Tuple2<Long, String> pair;
    public long total;
}
