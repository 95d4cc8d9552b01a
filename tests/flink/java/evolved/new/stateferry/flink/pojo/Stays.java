package stateferry.flink.pojo;

import java.util.Objects;

/** A class that stays. */
public class Stays {
    public String name;
    public long total;

    @Override
    public boolean equals(Object other) {
        return other instanceof Stays && Objects.equals(name, ((Stays) other).name) && total == ((Stays) other).total;
    }

    @Override
    public int hashCode() {
        return Objects.hash(name, total);
    }
}
