package stateferry.flink.pojo;

import java.util.HashSet;

/** A set that is a class of the job. */
public class Crowd<T> extends HashSet<T> {}
