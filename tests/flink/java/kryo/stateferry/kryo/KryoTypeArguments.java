package stateferry.kryo;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple1;
import org.apache.flink.api.java.tuple.Tuple12;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.types.Either;

/** Maps whose values are objects of classes of a job with type arguments of classes that aren't collections. */
public final class KryoTypeArguments {
    private static final TypeInformation<?> S = Types.STRING;

    enum Color { RED, GREEN, BLUE }

    public static class Open {
        public String name = "open";
        public int n = 3;
    }

    public static final class Closed {
        public String name = "closed";
        public Long n = 4L;
    }

    public static class Box<T> {
        T content;

        Box() {}

        Box(T content) {
            this.content = content;
        }
    }

    public static class Duo<A, B> {
        A first;
        int n = 7;
        B second;
        List<B> seconds;
        Map<A, B> both;
        Map<String, B> named;
        Map<A, String> names;

        @SafeVarargs
        final Duo<A, B> of(A one, B other, B... more) {
            first = one;
            second = other;
            seconds = new ArrayList<>(Arrays.asList(more));
            both = new LinkedHashMap<>();
            both.put(one, other);
            named = new LinkedHashMap<>();
            named.put("named", other);
            names = new LinkedHashMap<>();
            names.put(one, "name");
            return this;
        }
    }

    public static class Node<T> {
        T content;
        Node<T> next;

        Node() {}

        Node(T content, Node<T> next) {
            this.content = content;
            this.next = next;
        }
    }

    public static final class Fixed<T> {
        T content;

        Fixed() {}

        Fixed(T content) {
            this.content = content;
        }
    }

    public static class Phantom<T> {
        String text = "phantom";
        Object any;
    }

    public static class LongBox extends Box<Long> {}

    public static class RawBox extends Box {}

    public static class Labelled<X> extends Box<X> {
        X label;
    }

    public static class SameName<T> extends Box<Long> {
        T other;
    }

    public static class Swapped<A, B> extends Duo<B, A> {
        A mine;
    }

    public static class Half<C> extends Duo<C, Long> {
        C third;
    }

    public static class Whole extends Half<String> {}

    public static class Tuples {
        Tuple2<String, Long> pair;
        Tuple3<Integer, Open, Closed> three;
        Tuple2<Color, Long[]> colored;
        Tuple2<String, List<Long>> deep;
        Tuple2<UUID, Tuple1<Long>> nested;
        Tuple1<Object> any;
        Tuple2<BigDecimal, ? extends Number> wild;
    }

    public static class TupleInTuple {
        Tuple2<Tuple2<String, Long>, Long> nested;
    }

    public static class LargeTuple {
        Tuple12<Integer, Integer, Integer, Integer, Integer, Integer, Integer, Integer, Integer, Integer, String, Long> many;
    }

    public static class Others {
        EnumSet<Color> colors;
        Optional<String> text;
        Optional<Open> open;
        Optional<Box<Long>> box;
        Either<String, Long> left;
        Either<String, Long> right;
        AtomicReference<String> reference;
        AtomicReference<Closed> closed;
        Comparator<String> comparator;
    }

    public static class ByLength implements Comparator<String> {
        int sign = 1;

        public int compare(String one, String other) {
            return sign * Integer.compare(one.length(), other.length());
        }
    }

    public static class Boxes {
        Box<String> text;
        Box<Long> number;
        Box<Open> open;
        Box<Closed> closed;
        Box<Color> color;
        Box<List<String>> list;
        Box<Object> any;
        Box<?> wild;
        Box<? extends Closed> bound;
        Box raw;
        Fixed<String> fixed;
    }

    public static class Duos {
        Duo<String, Long> plain;
        Duo<Long, Open> open;
        Duo<String, List<Long>> lists;
        Node<String> node;
        Phantom<String> phantom;
    }

    public static class InCollections {
        List<Tuple2<String, Long>> pairs;
        List<Box<String>> boxes;
        Map<String, Box<Long>> byName;
        Map<Tuple2<String, Long>, Long> byPair;
        Map<String, List<Tuple2<Long, Long>>> deep;
        List<Duo<String, Long>> duos;
        List<? extends Closed> wild;
        List<? super Closed> lower;
        Map<?, ? extends Open> wildMap;
    }

    public static class Optionals {
        List<Optional<String>> optionals;
    }

    public static class Before {
        List<Tuple2<String, Long>> a;
        Tuple2<String, Long> b;
    }

    public static class Behind {
        Tuple2<String, Long> a;
        List<Tuple2<String, Long>> b;
    }

    public static class Within {
        Box<Object> a;
        Object b;
        Box<Box<Long>> c;
    }

    public static class BoxOfFixed {
        Box<Fixed<Integer>> box;
    }

    public static class Outer<T> {
        T content;
        Inner inner;

        public class Inner {
            String text = "inner";
        }
    }

    private KryoTypeArguments() {}

    private static Map<Object, Object> linked(Object... parts) {
        Map<Object, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < parts.length; i += 2) {
            map.put(parts[i], parts[i + 1]);
        }
        return map;
    }

    @SafeVarargs
    private static <T> List<T> list(T... parts) {
        return new ArrayList<>(Arrays.asList(parts));
    }

    private static Tuples tuples(int n) {
        Tuples one = new Tuples();
        one.pair = Tuple2.of("pair " + n, n == 1 ? null : (long) n);
        one.three = Tuple3.of(n, new Open(), n == 1 ? null : new Closed());
        one.colored = n == 0 ? null : Tuple2.of(Color.GREEN, new Long[] {1L, null, (long) n});
        one.deep = Tuple2.of("deep", list(5L, null, -1L));
        one.nested = Tuple2.of(new UUID(1, n), Tuple1.of(9L));
        one.any = Tuple1.of(n == 0 ? "any" : 5L);
        one.wild = Tuple2.of(new BigDecimal("1.5"), n);
        return one;
    }

    private static Others others(int n) {
        Others one = new Others();
        one.text = n == 0 ? Optional.empty() : Optional.of("text " + n);
        one.open = Optional.of(new Open());
        one.box = Optional.of(new Box<>(6L));
        one.left = Either.Left("left " + n);
        one.right = Either.Right(4L + n);
        one.reference = new AtomicReference<>("reference");
        one.closed = new AtomicReference<>(n == 0 ? null : new Closed());
        one.comparator = new ByLength();
        one.colors = EnumSet.of(Color.RED, Color.BLUE);
        return one;
    }

    private static Boxes boxes(int n) {
        Boxes one = new Boxes();
        one.text = new Box<>(n == 0 ? null : "text " + n);
        one.number = new Box<>(n - 1L);
        one.open = new Box<>(new Open());
        one.closed = new Box<>(new Closed());
        one.color = new Box<>(Color.BLUE);
        one.list = new Box<>(list("a", "bc"));
        one.any = new Box<>(n == 0 ? 5L : "any");
        one.wild = new Box<>(UUID.fromString("6e8bc430-9c3a-11d9-9669-0800200c9a66"));
        one.bound = new Box<>(new Closed());
        one.fixed = new Fixed<>("fixed");
        return one;
    }

    private static Duos duos(int n) {
        Duos one = new Duos();
        one.plain = new Duo<String, Long>().of("plain " + n, n == 0 ? null : (long) n, 1L, 2L);
        one.open = new Duo<Long, Open>().of(3L, new Open(), new Open());
        one.lists = new Duo<String, List<Long>>().of("lists", list(7L, 8L), list(9L), null);
        one.node = new Node<>("first", new Node<>("second", n == 0 ? null : new Node<>("third", null)));
        one.phantom = new Phantom<>();
        return one;
    }

    private static InCollections inCollections(int n) {
        InCollections one = new InCollections();
        one.pairs = list(Tuple2.of("a", 1L), Tuple2.of("b", n == 0 ? null : 2L));
        one.boxes = list(new Box<>("x"), new Box<>(null), n == 0 ? null : new Box<>("yz"));
        one.byName = new LinkedHashMap<>();
        one.byName.put("five", new Box<>(5L));
        one.byName.put("none", null);
        one.byPair = new LinkedHashMap<>();
        one.byPair.put(Tuple2.of("key", 6L), 7L);
        one.deep = new LinkedHashMap<>();
        one.deep.put("deep", list(Tuple2.of(1L, 2L), Tuple2.of(3L, 4L)));
        one.duos = list(new Duo<String, Long>().of("d", 1L, 2L, 3L));
        one.wild = list(new Closed(), null);
        one.lower = list(new Closed());
        one.wildMap = linkedOf("k", new Open());
        return one;
    }

    private static <K, V> Map<K, V> linkedOf(K key, V value) {
        Map<K, V> map = new LinkedHashMap<>();
        map.put(key, value);
        return map;
    }

    static void kept() {
        for (int n = 0; n < 3; n++) {
            show("type arguments: tuples " + n, linked("a", tuples(n), "b", tuples(n + 1)));
            show("type arguments: others " + n, linked("a", others(n), "b", others(n + 1)));
            show("type arguments: boxes " + n, linked("a", boxes(n), "b", boxes(n + 1)));
            show("type arguments: duos " + n, linked("a", duos(n), "b", duos(n + 1)));
            show("type arguments: in collections " + n, linked("a", inCollections(n), "b", inCollections(n + 1)));
        }
        show("type arguments: nothing", linked("a", new Tuples(), "b", new Others(), "c", new Boxes(), "d", new Duos(), "e", new InCollections()));
        LongBox longBox = new LongBox();
        longBox.content = 5L;
        RawBox rawBox = new RawBox();
        rawBox.content = "raw";
        Labelled<String> labelled = new Labelled<>();
        labelled.content = "content";
        labelled.label = "label";
        SameName<Long> sameName = new SameName<>();
        sameName.content = 1L;
        sameName.other = 2L;
        show("subclasses: LongBox", linked("a", longBox, "b", new LongBox(), "c", longBox));
        show("subclasses: RawBox", linked("a", rawBox));
        show("subclasses: Labelled", linked("a", labelled));
        show("subclasses: SameName", linked("a", sameName));
        show("subclasses: Box", linked("a", new Box<>("x"), "b", new Box<>(5L), "c", new Node<>(1L, new Node<>(2L, null)), "d", new Duo<String, Long>().of("s", 1L, 2L, 3L)));
        Swapped<String, Long> swapped = new Swapped<>();
        swapped.of(5L, "five", "six");
        swapped.mine = "mine";
        show("subclasses: Swapped", linked("a", swapped));
        Half<String> half = new Half<>();
        half.of("half", 5L, 6L);
        half.third = "third";
        show("subclasses: Half", linked("a", half));
        Whole whole = new Whole();
        whole.of("whole", 5L, 6L);
        whole.third = "third";
        show("subclasses: Whole", linked("a", whole, "b", whole));
        Boxes boxes = new Boxes();
        boxes.number = longBox;
        boxes.text = labelled;
        show("subclasses: in fields", linked("a", boxes));
        boxes = new Boxes();
        boxes.text = rawBox;
        show("subclasses: a raw one in a field", linked("a", boxes));
        boxes = new Boxes();
        boxes.number = sameName;
        show("subclasses: one with the same name in a field", linked("a", boxes));
        Duos duos = new Duos();
        duos.plain = half;
        show("subclasses: Half in a field", linked("a", duos));
        duos = new Duos();
        duos.plain = whole;
        show("subclasses: Whole in a field", linked("a", duos));
        boxes = new Boxes();
        boxes.raw = new Box<>("raw");
        boxes.text = new Box<>("text");
        show("type arguments: a raw field", linked("a", boxes));
        Optionals optionals = new Optionals();
        optionals.optionals = list(Optional.of("optional"), Optional.empty());
        show("type arguments: optionals in a list", linked("a", optionals));
        Before before = new Before();
        before.a = list(Tuple2.of("a", 1L));
        before.b = Tuple2.of("b", 2L);
        show("type arguments: a list before a field", linked("a", before));
        Before untrue = new Before();
        untrue.a = list((Tuple2<String, Long>) (Tuple2) Tuple2.of("a", 1));
        show("type arguments: an Integer that is declared as Long", linked("a", untrue));
        Behind behind = new Behind();
        behind.a = Tuple2.of("a", 1L);
        behind.b = list(Tuple2.of("b", 2L));
        show("type arguments: a list behind a field", linked("a", behind));
        Within within = new Within();
        within.a = new Box<>(new Box<>("inner"));
        within.b = new Box<>(5L);
        within.c = new Box<>(new Box<>(5L));
        show("type arguments: boxes within boxes", linked("a", within));
        within = new Within();
        within.a = new Box<>(list(new Box<>("inner")));
        show("type arguments: boxes in lists in boxes", linked("a", within));
        BoxOfFixed fixed = new BoxOfFixed();
        fixed.box = new Box<>(new Fixed<>(5));
        show("type arguments: a final class in a box", linked("a", fixed));
        TupleInTuple inTuple = new TupleInTuple();
        inTuple.nested = Tuple2.of(Tuple2.of("inner", 5L), 6L);
        show("type arguments: a tuple in a tuple", linked("a", inTuple));
        LargeTuple large = new LargeTuple();
        large.many = new Tuple12<>(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, "ten", 11L);
        show("type arguments: a large tuple", linked("a", large));
        Box<String> shared = new Box<>("shared");
        boxes = new Boxes();
        boxes.text = shared;
        boxes.any = new Box<>(shared);
        show("type arguments: one box in a box, too", linked("a", boxes));
        boxes = new Boxes();
        boxes.text = shared;
        show("type arguments: one box in two objects", linked("a", boxes, "b", boxes, "c", shared));
        Boxes others = boxes(1);
        others.text = shared;
        show("type arguments: one box in two fields", linked("a", boxes, "b", others));
        String text = "one text";
        boxes = new Boxes();
        boxes.text = new Box<>(text);
        boxes.fixed = new Fixed<>(text);
        show("type arguments: one text", linked("a", boxes, text, boxes));
        Outer<String> outer = new Outer<>();
        outer.content = "content";
        outer.inner = outer.new Inner();
        show("type arguments: a class inside of a class", linked("a", outer));
    }

    private static void show(String name, Object map) {
        KryoValues.show(name, HashMap.class, Types.MAP(S, Types.GENERIC(Object.class)), map);
    }
}
