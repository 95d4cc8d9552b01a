package stateferry.flink.pojo;

import java.util.HashMap;

/** A map without type parameters, of which there are no subclasses. */
public final class Counts extends HashMap<String, Long> {}
