package stateferry.flink.pojo;

import org.apache.flink.api.java.tuple.Tuple2;

/** A tuple of the job's own, which Flink stores by its serializer of tuples. */
public class Pair extends Tuple2<Long, String> {
    public Pair() {}

    public Pair(Long first, String second) {
        super(first, second);
    }
}
