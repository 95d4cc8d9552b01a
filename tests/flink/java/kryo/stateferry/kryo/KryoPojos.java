package stateferry.kryo;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.sql.Timestamp;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;

/** Maps by Kryo with objects of a job's classes that Flink takes for POJOs, and of classes that it doesn't. */
public final class KryoPojos {
    private static final TypeInformation<?> S = Types.STRING;

    public enum Color { RED, GREEN, BLUE }

    public enum Shape {
        ROUND { @Override int corners() { return 0; } },
        SQUARE { @Override int corners() { return 4; } };

        abstract int corners();
    }

    public static class Numbers {
        public static int count = 5;
        public transient int cache = 7;
        public long z = -5;
        public int n = 1;
        public short s = -2;
        public byte b = 3;
        public boolean flag = true;
        public char c = '\u00fc';
        public float f = 2.5f;
        public double d = Double.NaN;
        public Long boxedLong = -7L;
        public Integer boxedInt;
        public Short boxedShort = 9;
        public Byte boxedByte;
        public Boolean boxedFlag = false;
        public Character boxedChar = 'x';
        public Float boxedFloat = -0.0f;
        public Double boxedDouble;

        public Numbers() {}

        public Numbers(int n) {
            this.n = n;
            z = n * 1_000_000_007L;
            boxedInt = n % 2 == 0 ? null : n;
        }
    }

    public static class Texts {
        public String text = "text \u20ac";
        public String none;
        public BigDecimal amount = new BigDecimal("-12.50");
        public BigInteger big = BigInteger.TEN.pow(30);
        public Instant at = Instant.ofEpochSecond(1700000000, 123456789);
        public Date date = new Date(1700000000123L);
        public Timestamp stamp = new Timestamp(1700000000123L);
        public Color color = Color.BLUE;
        public Shape shape = Shape.SQUARE;
        public int[] ints = {1, -2, 3};
        public byte[] bytes = {1, 2};
        public double[] doubles = {};
        public String[] names = {"a", "bc"};
        public Long[] longs = {5L, null, -6L};
    }

    public static class Base {
        private long id;
        protected String _last_name = "last";

        public long getId() { return id; }

        public void setId(long id) { this.id = id; }

        public String getLastName() { return _last_name; }

        public void setLastName(String name) { _last_name = name; }
    }

    public static class Bean extends Base {
        private boolean active = true;
        private Numbers numbers = new Numbers(3);
        private Inner inner;

        public boolean isActive() { return active; }

        public void setActive(boolean active) { this.active = active; }

        public Numbers getNumbers() { return numbers; }

        public void setNumbers(Numbers numbers) { this.numbers = numbers; }

        public Inner getInner() { return inner; }

        public void setInner(Inner inner) { this.inner = inner; }

        static Bean of(long id, Inner inner) {
            Bean bean = new Bean();
            bean.setId(id);
            bean.inner = inner;
            bean.active = id % 2 == 0;
            return bean;
        }
    }

    public static class Inner {
        public String text;
        public Color color;

        public Inner() {}

        public Inner(String text, Color color) {
            this.text = text;
            this.color = color;
        }
    }

    public static class WithList {
        public List<String> list = new ArrayList<>();
    }

    public static class WithoutSetter {
        private int n;

        public int getN() { return n; }
    }

    public static class WithoutConstructor {
        public int n;

        WithoutConstructor() {}
    }

    static class NotPublic {
        public int n;

        public NotPublic() {}
    }

    public static class Special extends Inner {
        public int more = 1;
    }

    public static class Itself {
        public Itself next;
        public int n;
    }

    private KryoPojos() {}

    private static Map<Object, Object> linked(Object... parts) {
        Map<Object, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < parts.length; i += 2) {
            map.put(parts[i], parts[i + 1]);
        }
        return map;
    }

    private static List<Object> list(Object... parts) {
        return new ArrayList<>(Arrays.asList(parts));
    }

    private static TypeInformation<?> of(Class<?> one) {
        return TypeInformation.of(one);
    }

    static void examples() {
        show("numbers", Types.MAP(S, of(Numbers.class)), linked("a", new Numbers(), "b", new Numbers(2), "c", new Numbers(-3)));
        show("texts", Types.MAP(S, of(Texts.class)), linked("a", new Texts(), "b", new Texts()));
        Inner inner = new Inner("text", Color.RED);
        TypeInformation<?> beans = Types.MAP(S, of(Bean.class));
        show("beans", beans, linked("a", Bean.of(1, inner), "b", Bean.of(2, null), "c", Bean.of(3, new Inner(null, null))));
        show("one object in two beans", beans, linked("a", Bean.of(1, inner), "b", Bean.of(2, inner)));
        Bean bean = Bean.of(5, inner);
        show("one bean twice", beans, linked("a", bean, "b", bean, "c", Bean.of(6, inner)));
        show("a null bean", beans, linked("a", null, "b", bean));
        show("beans in lists", Types.MAP(S, Types.LIST(of(Inner.class))), linked("a", list(inner, new Inner("x", Color.BLUE), inner), "b", list()));
        show("beans in maps", Types.MAP(S, Types.MAP(Types.LONG, of(Inner.class))), linked("a", linked(1L, inner, 2L, null), "b", linked(3L, inner)));
        show("beans in tuples", Types.MAP(S, Types.TUPLE(of(Inner.class), Types.LONG)), linked("a", Tuple2.of(inner, 1L), "b", Tuple2.of(inner, 2L)));
        show("beans as keys", Types.MAP(of(Inner.class), Types.LONG), linked(inner, 1L, new Inner("other", null), 2L));
        show("registered beans", beans, linked("a", bean, "b", Bean.of(7, inner)), Inner.class, Bean.class, Color.class);
        Map<Object, Object> many = new LinkedHashMap<>();
        for (int i = 0; i < 300; i++) {
            many.put("key " + i, new Numbers(i));
        }
        show("many", Types.MAP(S, of(Numbers.class)), many);
        for (Class<?> one : List.of(WithList.class, WithoutSetter.class, WithoutConstructor.class, NotPublic.class, Itself.class)) {
            show("not a POJO: " + one.getSimpleName(), Types.MAP(S, of(one)), linked());
        }
        Special special = new Special();
        show("not a POJO: a subclass", Types.MAP(S, of(Inner.class)), linked("a", inner, "b", special));
    }

    private static void show(String name, TypeInformation<?> type, Map<Object, Object> map, Class<?>... registered) {
        KryoValues.show(name, HashMap.class, type, map, registered);
    }
}
