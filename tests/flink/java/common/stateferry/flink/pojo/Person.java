package stateferry.flink.pojo;

import java.math.BigDecimal;
import java.time.Instant;

/** A POJO with primitive, boxed, nested and enum fields. */
public class Person {
    public String name;
    public int age;
    public Long score;
    public double weight;
    public boolean active;
    public Address home;
    public Color favourite;
    public BigDecimal balance;
    public Instant seen;
    public byte[] picture;
    public String[] aliases;
}
