package stateferry.kryo;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;

/**
 * Reads maps with Flink's KryoSerializer, and writes them with Flink's own serializer.
 *
 * <p>A line of the input has the snapshots of both serializers and the bytes of a map, in hexadecimal. The answer is the
 * written bytes, or "refused" with the reason.
 */
public final class KryoJudge {
    private static final HexFormat HEX = HexFormat.of();

    private KryoJudge() {}

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(" ", -1);
            try {
                out.println(answer(serializer(parts[0]), serializer(parts[1]), HEX.parseHex(parts[2])));
            } catch (Throwable failure) {
                out.println("refused " + failure.toString().replaceAll("[^ -~]", "?"));
            }
        }
    }

    private static String answer(TypeSerializer<Object> kryo, TypeSerializer<Object> own, byte[] bytes) throws Exception {
        DataInputDeserializer input = new DataInputDeserializer(bytes);
        Object value = kryo.deserialize(input);
        if (input.available() > 0) {
            return "refused " + input.available() + " bytes more";
        }
        if (value == null) {
            return "null";
        }
        DataOutputSerializer output = new DataOutputSerializer(64);
        own.serialize(value, output);
        return HEX.formatHex(output.getCopyOfBuffer());
    }

    @SuppressWarnings("unchecked")
    private static TypeSerializer<Object> serializer(String snapshot) throws Exception {
        DataInputDeserializer input = new DataInputDeserializer(HEX.parseHex(snapshot));
        ClassLoader loader = KryoJudge.class.getClassLoader();
        return (TypeSerializer<Object>) TypeSerializerSnapshot.readVersionedSnapshot(input, loader).restoreSerializer();
    }
}
