package stateferry.flink.pojo;

import com.esotericsoftware.kryo.Kryo;
import com.esotericsoftware.kryo.Serializer;
import com.esotericsoftware.kryo.io.Input;
import com.esotericsoftware.kryo.io.Output;

/** A job's own serializer for Kryo. The same code is compiled with Kryo 2 and with Kryo 5, whose ints differ. */
@SuppressWarnings({"rawtypes", "unchecked"})
public final class OpaqueSerializer extends Serializer {
    @Override
    public void write(Kryo kryo, Output output, Object value) {
        String text = value.toString();
        int at = text.lastIndexOf('#');
        output.writeString(text.substring(0, at));
        output.writeInt(Integer.parseInt(text.substring(at + 1)));
    }

    @Override
    public Object read(Kryo kryo, Input input, Class type) {
        return new Opaque(input.readString(), input.readInt());
    }
}
