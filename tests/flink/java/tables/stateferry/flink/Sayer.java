package stateferry.flink;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.streaming.api.operators.ProcessOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.util.Collector;

/** Adds to {@link Tables#SAID} what comes in, behind a name, and keeps the watermark that has come in. */
final class Sayer<T> extends ProcessOperator<T, Void> {
    private static final long serialVersionUID = 1L;
    private static final Map<String, Long> REACHED = new ConcurrentHashMap<>();
    private final String name;

    private Sayer(String name) {
        super(new Saying<>(name));
        this.name = name;
    }

    static <T> void say(DataStream<T> stream, String name) {
        REACHED.put(name, Long.MIN_VALUE);
        stream.transform("say-" + name, Types.VOID, new Sayer<T>(name))
                .setParallelism(1)
                .uid("say-" + name)
                .sinkTo(new DiscardingSink<>())
                .setParallelism(1)
                .uid("discarded-" + name);
    }

    static boolean haveAllWatermarks() {
        return REACHED.values().stream().allMatch(reached -> reached > Long.MIN_VALUE);
    }

    @Override
    public void processWatermark(Watermark mark) throws Exception {
        super.processWatermark(mark);
        REACHED.put(name, mark.getTimestamp());
    }

    private static final class Saying<T> extends ProcessFunction<T, Void> {
        private static final long serialVersionUID = 1L;
        private final String name;

        Saying(String name) {
            this.name = name;
        }

        @Override
        public void processElement(T value, Context context, Collector<Void> out) {
            Tables.SAID.add(name + " " + value);
        }
    }
}
