package stateferry.totals;

import org.apache.flink.connector.datagen.source.GeneratorFunction;

/** One record of the input, which is endless and the same whenever it is read: its index says all that is in it. */
public final class Purchase {
    private static final int ITEMS = 7;
    private static final int AMOUNTS = 9;
    public long index;
    public String customer;
    public String item;
    public long amount;

    static long amountOf(long index) {
        return 1 + index % AMOUNTS;
    }

    static final class Generator implements GeneratorFunction<Long, Purchase> {
        private static final long serialVersionUID = 1L;
        private final int customers;
        private final String name;

        /** The customers take turns; the name of each has at least so many digits. */
        Generator(int customers, int digits) {
            this.customers = customers;
            name = "customer-%0" + digits + "d";
        }

        @Override
        public Purchase map(Long index) {
            Purchase purchase = new Purchase();
            purchase.index = index;
            purchase.customer = String.format(name, index % customers);
            purchase.item = "item-" + index / customers % ITEMS;
            purchase.amount = amountOf(index);
            return purchase;
        }
    }
}
