package stateferry.flink;

import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;

/** A sink that need not know the context of Flink 1.18. */
abstract class LegacySink<T> implements Sink<T> {
    @Override
    @SuppressWarnings("deprecation")
    public SinkWriter<T> createWriter(InitContext context) {
        throw new UnsupportedOperationException();
    }
}
