package stateferry.flink;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.types.Row;

/** An order with collections: Flink 1 has Kryo write all three, Flink 2 only the one that is declared as a HashMap. */
public final class Basket {
    private static final int ITEMS = 3;

    public String customer;
    public long amount;
    public List<String> items;
    public Map<String, Long> amounts;
    public HashMap<String, Long> prices;

    public static Basket of(Row order) {
        Basket out = new Basket();
        out.customer = order.getFieldAs(0);
        out.amount = order.<Long>getFieldAs(2);
        String item = order.getFieldAs(1);
        out.items = new ArrayList<>(List.of(item, item + " again"));
        out.amounts = new HashMap<>();
        out.prices = new HashMap<>();
        for (int i = 0; i < ITEMS; i++) {
            out.amounts.put(item + " " + i, out.amount + i);
            out.prices.put(item + " " + i, out.amount * i);
        }
        return out;
    }

    @Override
    public String toString() {
        return customer + " " + amount + " " + items + " " + new TreeMap<>(amounts) + " " + new TreeMap<>(prices);
    }
}
