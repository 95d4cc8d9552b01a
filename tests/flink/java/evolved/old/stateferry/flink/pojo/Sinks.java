package stateferry.flink.pojo;

/** A class that gets a field of its superclass. */
public class Sinks extends Below {
    public int other;
}
