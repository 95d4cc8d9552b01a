package stateferry.flink.pojo;

import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;

/** The subclasses whose instances may be met where this class is declared. */
@Retention(RetentionPolicy.RUNTIME)
public @interface Subclasses {
    Class<?>[] value();
}
