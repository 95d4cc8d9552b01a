package stateferry.flink.pojo;

/** A class that Flink can't reach into, so Kryo stores it. */
public class Kept {
    public String name;
    private String hidden = "hidden";
}
