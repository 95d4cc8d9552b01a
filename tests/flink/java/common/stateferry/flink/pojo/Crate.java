package stateferry.flink.pojo;

import java.util.UUID;

/** A POJO with arrays of objects, of final classes and of others. */
public class Crate {
    public Address[] stops;
    public Color[] colors;
    public Animal[] animals;
    public UUID[] ids;
    public String[] words;
    public Long[] numbers;
    public double[] weights;
    public char mark;
    public short width;
    public Float height;
}
