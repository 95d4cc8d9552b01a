package stateferry.flink.pojo;

import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;

/** A POJO with fields that Flink leaves to Kryo, in Flink 1 also its collections. */
public class Visit {
    public String who;
    public List<String> tags;
    public List<Address> stops;
    public Map<String, Long> counts;
    public Map<Integer, Double> rates;
    public Set<Long> marks;
    public LocalDate day;
    public LocalDateTime moment;
    public UUID id;
    public Address home;
    public long total;
}
