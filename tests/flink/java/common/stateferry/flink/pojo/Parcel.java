package stateferry.flink.pojo;

import java.math.BigDecimal;
import java.util.Date;

/** A POJO whose fields both Kryos write alike. */
public class Parcel {
    public long number;
    public boolean open;
    public byte size;
    public Long weight;
    public Boolean fragile;
    public BigDecimal price;
    public Date sent;
    public long[] stops;
    public String[] words;
    public Address home;
}
