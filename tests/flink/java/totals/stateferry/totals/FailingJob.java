package stateferry.totals;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** A new job that fails where its tasks start. */
public final class FailingJob {
    private FailingJob() {}

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        Topology.run("totals", options, new Failing());
    }

    static final class Failing extends KeyedProcessFunction<String, Purchase, Total> {
        private static final long serialVersionUID = 1L;

        @Override
        public void open(OpenContext context) {
            throw new IllegalStateException("the price list cannot be found");
        }

        @Override
        public void processElement(Purchase purchase, Context context, Collector<Total> out) {
            throw new IllegalStateException("no job gets as far as this");
        }
    }
}
