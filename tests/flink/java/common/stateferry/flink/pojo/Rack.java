package stateferry.flink.pojo;

import java.util.AbstractList;
import java.util.ArrayList;
import java.util.List;

/** A list that has its elements in one of the JDK's. */
public class Rack<T> extends AbstractList<T> {
    private final List<T> elements = new ArrayList<>();

    @Override
    public T get(int index) {
        return elements.get(index);
    }

    @Override
    public void add(int index, T element) {
        elements.add(index, element);
    }

    @Override
    public int size() {
        return elements.size();
    }
}
