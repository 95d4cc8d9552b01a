package stateferry.flink.pojo;

/** A class that Flink leaves to Kryo, with two Strings, which may be one object. */
public final class Route {
    private final String from;
    private final String to;

    public Route(String from, String to) {
        this.from = from;
        this.to = to;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Route && toString().equals(other.toString());
    }

    @Override
    public int hashCode() {
        return toString().hashCode();
    }

    @Override
    public String toString() {
        return from + "-" + to;
    }
}
