package stateferry.flink.pojo;

import java.util.Objects;

/** It has got fields. */
public class Grows {
    public String name;
    public int count;
    public long total;
    public String note;

    @Override
    public boolean equals(Object other) {
        return other instanceof Grows && Objects.equals(name, ((Grows) other).name) && total == ((Grows) other).total;
    }

    @Override
    public int hashCode() {
        return Objects.hash(name, total);
    }
}
