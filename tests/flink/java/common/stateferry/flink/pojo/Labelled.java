package stateferry.flink.pojo;

import org.apache.flink.api.java.tuple.Tuple2;

/** A tuple with a field of its own, which Flink takes for a POJO. */
public class Labelled extends Tuple2<Long, String> {
    public String label;

    public Labelled() {}

    public Labelled(Long first, String second, String label) {
        super(first, second);
        this.label = label;
    }
}
