package stateferry.flink.pojo;

/** A superclass that stays when its subclass leaves it. */
public class LeftBase {
    public String name;
}
