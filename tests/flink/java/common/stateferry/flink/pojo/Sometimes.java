package stateferry.flink.pojo;

import java.util.Optional;
import java.util.UUID;

/** A field that Flink gives to Kryo. */
public class Sometimes {
    public long number;
    public Optional<UUID> id;
}
