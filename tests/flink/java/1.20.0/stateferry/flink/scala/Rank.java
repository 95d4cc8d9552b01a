package stateferry.flink.scala;

import scala.Enumeration;

/** An enumeration whose numbers have gaps: Flink writes and reads its values, but restores no state that has them. */
public final class Rank extends Enumeration {
    public static final Rank MODULE$ = new Rank();

    private final transient Value[] all = {Value(3, "Queen"), Value(-2, "Ace"), Value(11, "Ten")};

    private Rank() {}

    public static Value[] all() {
        return MODULE$.all;
    }
}
