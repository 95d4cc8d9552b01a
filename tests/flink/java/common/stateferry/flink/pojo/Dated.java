package stateferry.flink.pojo;

import java.util.ArrayList;
import java.util.List;

/** Anything with a date and notes, as people write a class with a type parameter: no POJO, so Kryo writes its fields. */
public final class Dated<T> {
    private final T value;
    private final long date;
    private final List<String> notes = new ArrayList<>();

    public Dated(T value) {
        this.value = value;
        this.date = String.valueOf(value).hashCode();
        if (date % 2 == 0) {
            notes.add("even");
        }
    }

    public T value() {
        return value;
    }

    public String notes() {
        return date + " " + notes;
    }
}
