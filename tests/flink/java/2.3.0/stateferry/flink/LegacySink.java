package stateferry.flink;

import org.apache.flink.api.connector.sink2.Sink;

/** A sink that need not know the context of Flink 1.18. */
abstract class LegacySink<T> implements Sink<T> {}
