package stateferry.flink.pojo;

/** A class that Flink can't analyse, so it leaves it to Kryo. */
public final class Opaque {
    private final String text;
    private final int number;

    public Opaque(String text, int number) {
        this.text = text;
        this.number = number;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Opaque && toString().equals(other.toString());
    }

    @Override
    public int hashCode() {
        return toString().hashCode();
    }

    @Override
    public String toString() {
        return text + "#" + number;
    }
}
