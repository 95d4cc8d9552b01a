package stateferry.flink.pojo;

import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;

/** Nulls are to be met in the collections in the fields of this class. */
@Retention(RetentionPolicy.RUNTIME)
public @interface NullParts {}
