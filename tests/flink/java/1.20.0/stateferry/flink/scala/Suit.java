package stateferry.flink.scala;

import scala.Enumeration;

/** An enumeration as Scala compiles {@code object Suit}: its numbers have gaps. */
public final class Suit extends Enumeration {
    public static final Suit MODULE$ = new Suit();

    private final transient Value[] all = {Value(3, "Hearts"), Value(-2, "Spades"), Value(11, "Clubs")};

    private Suit() {}

    public static Value[] all() {
        return MODULE$.all;
    }
}
