package stateferry.flink;

import org.apache.flink.streaming.api.functions.source.legacy.RichParallelSourceFunction;

/** A source function under a name that doesn't move between versions of Flink. */
abstract class LegacySource<T> extends RichParallelSourceFunction<T> {}
