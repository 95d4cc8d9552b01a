package stateferry.flink.pojo;

/** It has no fields. */
public class Empties {
}
