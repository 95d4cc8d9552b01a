package stateferry.flink;

import org.apache.flink.streaming.api.datastream.KeyedStream;

/** State that is accessed asynchronously, since Flink 2. */
final class AsyncState {
    private AsyncState() {}

    static <T, K> KeyedStream<T, K> enabled(KeyedStream<T, K> stream) {
        throw new UnsupportedOperationException("Flink 1 has no asynchronous state");
    }
}
