package stateferry.flink.pojo;

import java.util.Objects;

/** A field gets another type. */
public class Widens {
    public String name;
    public int total;

    @Override
    public boolean equals(Object other) {
        return other instanceof Widens && Objects.equals(name, ((Widens) other).name) && total == ((Widens) other).total;
    }

    @Override
    public int hashCode() {
        return Objects.hash(name, total);
    }
}
