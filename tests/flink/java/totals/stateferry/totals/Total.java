package stateferry.totals;

/** What a customer has spent on an item, the purchase of that index included. */
public final class Total {
    public long index;
    public String customer;
    public String item;
    public long total;

    static Total of(Purchase purchase, long total) {
        Total of = new Total();
        of.index = purchase.index;
        of.customer = purchase.customer;
        of.item = purchase.item;
        of.total = total;
        return of;
    }

    String line() {
        return index + " " + customer + " " + item + " " + total + "\n";
    }
}
