package stateferry.flink.pojo;

/** Fields that Flink reaches by methods. */
public class Beans {
    public String name;
    private long total;

    public long getTotal() {
        return total;
    }

    public void setTotal(long total) {
        this.total = total;
    }
}
