package stateferry.flink.pojo;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.types.Either;

/** Fields with type arguments of classes that aren't collections: no POJO, so Kryo writes them. */
public final class Ticket {
    private final Optional<Long> number;
    private final AtomicReference<Long> last;
    private final Tuple2<String, Long> pair;
    private final Dated<String> dated;
    private final Either<String, Long> either;
    private final List<Tuple3<Long, String, Long>> triples = new ArrayList<>();
    private final Tally tally = new Tally();

    /** A class with a type parameter. */
    public static class Counted<T> {
        protected T count;
        protected List<T> counts = new ArrayList<>();
    }

    /** A class that says what the type parameter of its superclass is. */
    public static class Tally extends Counted<Long> {}

    public Ticket(Long number) {
        this.number = Optional.ofNullable(number);
        last = new AtomicReference<>(number);
        pair = Tuple2.of("pair " + number, number);
        dated = new Dated<>("dated " + number);
        either = number == null || number % 2 == 0 ? Either.Left("left " + number) : Either.Right(number);
        for (long one = 0; number != null && one < Math.abs(number % 4); one++) {
            triples.add(Tuple3.of(one, "triple", one == 1 ? null : number));
            tally.counts.add(one + number);
        }
        tally.count = number;
    }

    @Override
    public String toString() {
        return number + " " + last.get() + " " + pair + " " + dated.value() + dated.notes() + " "
                + (either.isLeft() ? either.left() : either.right()) + triples + tally.count + tally.counts;
    }
}
