package stateferry.flink.pojo;

import java.io.Serializable;
import java.util.Comparator;

/** Sorts a map by what its keys say, as people write a comparator of their own. */
public final class ByText implements Comparator<Object>, Serializable {
    private static final long serialVersionUID = 1;

    @Override
    public int compare(Object one, Object other) {
        return String.valueOf(one).compareTo(String.valueOf(other));
    }
}
