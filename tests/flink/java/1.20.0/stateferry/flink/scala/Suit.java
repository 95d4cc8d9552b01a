package stateferry.flink.scala;

import scala.Enumeration;

/** An enumeration as Scala compiles {@code object Suit}. */
public final class Suit extends Enumeration {
    public static final Suit MODULE$ = new Suit();

    private final transient Value[] all = {Value("Hearts"), Value("Spades"), Value("Clubs")};

    private Suit() {}

    public static Value[] all() {
        return MODULE$.all;
    }
}
