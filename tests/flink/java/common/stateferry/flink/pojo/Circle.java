package stateferry.flink.pojo;

import java.util.UUID;

/** A shape with a part by Kryo. */
public class Circle extends Shape {
    public double radius;
    public UUID id;
}
