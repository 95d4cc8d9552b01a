package stateferry.totals;

import java.io.Serializable;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.flink.api.common.state.StateTtlConfig;

/** A job's arguments, as {@code --name value}. */
final class Options implements Serializable {
    private static final long serialVersionUID = 1L;
    private final HashMap<String, String> values = new HashMap<>();

    Options(String[] arguments) {
        if (arguments.length % 2 != 0) {
            throw new IllegalArgumentException("expected --name value ..., found " + String.join(" ", arguments));
        }
        for (int i = 0; i < arguments.length; i += 2) {
            values.put(arguments[i].replaceFirst("^--", ""), arguments[i + 1]);
        }
    }

    String required(String name) {
        return optional(name).orElseThrow(() -> new IllegalArgumentException("--" + name + " is missing"));
    }

    Optional<String> optional(String name) {
        return Optional.ofNullable(values.get(name));
    }

    Optional<StateTtlConfig> timeToLive() {
        return optional("ttl-days").map(days -> StateTtlConfig.newBuilder(Duration.ofDays(Long.parseLong(days))).build());
    }
}
