package stateferry.flink.pojo;

import java.util.Objects;

/** A POJO for nesting, and with a stable hash, so it may be a key. */
public class Address {
    public String street;
    public int number;
    public Long zip;

    @Override
    public boolean equals(Object other) {
        return other instanceof Address
                && Objects.equals(street, ((Address) other).street)
                && number == ((Address) other).number
                && Objects.equals(zip, ((Address) other).zip);
    }

    @Override
    public int hashCode() {
        return Objects.hash(street, number, zip);
    }
}
