package stateferry.flink.pojo;

import java.util.Objects;

/** It gets a field. */
public class Grows {
    public String name;
    public long total;

    @Override
    public boolean equals(Object other) {
        return other instanceof Grows && Objects.equals(name, ((Grows) other).name) && total == ((Grows) other).total;
    }

    @Override
    public int hashCode() {
        return Objects.hash(name, total);
    }
}
