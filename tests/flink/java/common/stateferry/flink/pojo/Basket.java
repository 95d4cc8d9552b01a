package stateferry.flink.pojo;

import java.util.ArrayList;

/** A list with a field of its own, which Kryo doesn't write. */
public class Basket<T> extends ArrayList<T> {
    private String owner = "nobody";

    public String owner() {
        return owner;
    }
}
