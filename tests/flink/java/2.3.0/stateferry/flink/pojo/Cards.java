package stateferry.flink.pojo;

/** The enum of Java that a job of Flink 2 has instead of the enumeration Suit of Scala. */
public enum Cards {
    Clubs,
    Hearts,
    Spades,
    Diamonds
}
