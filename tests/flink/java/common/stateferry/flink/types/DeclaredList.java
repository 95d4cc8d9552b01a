package stateferry.flink.types;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedList;
import java.util.List;
import java.util.Random;
import java.util.Vector;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.UnaryOperator;
import stateferry.flink.types.Composites.ListKind;
import stateferry.flink.types.Composites.Size;

/** Lists of the classes that a job may put where only {@code List} is declared: {@code AnyList<T>}. */
final class DeclaredList<T> extends ListKind<T> {
    private final List<UnaryOperator<List<T>>> makers = List.of(
            ArrayList::new,
            LinkedList::new,
            Vector::new,
            CopyOnWriteArrayList::new,
            Collections::unmodifiableList,
            Collections::synchronizedList,
            List::copyOf,
            DeclaredList::asList,
            list -> list.isEmpty() ? Collections.emptyList() : list,
            list -> list.size() == 1 ? Collections.singletonList(list.get(0)) : list);

    DeclaredList(Kind<T> element, Size size) {
        super(element, size);
    }

    @SuppressWarnings("unchecked")
    private static <T> List<T> asList(List<T> list) {
        return (List<T>) Arrays.asList(list.toArray());
    }

    @Override
    protected List<T> random(Random random) {
        List<T> drawn = super.random(random);
        return makers.get(random.nextInt(makers.size())).apply(drawn);
    }
}
