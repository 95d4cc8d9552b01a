package stateferry.flink;

import java.io.IOException;
import java.io.StringWriter;
import java.lang.reflect.Method;
import java.net.URI;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.ToolProvider;
import org.apache.flink.api.common.functions.SerializerFactory;
import org.apache.flink.api.common.serialization.SerializerConfig;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.runtime.state.ttl.TtlStateFactory;

/** States declared by a line of Java each, which is compiled as it stands, among the imports that such lines need. */
final class Declarations {
    private static final String CLASS = "Declared";
    private static final Map<String, Method> COMPILED = new HashMap<>();

    private Declarations() {}

    /** Compiles the lines of these states. */
    static synchronized void compile(List<Spec.State> states) {
        List<String> lines = states.stream()
                .map(state -> state.java)
                .filter(Objects::nonNull)
                .filter(line -> !COMPILED.containsKey(line))
                .distinct()
                .toList();
        if (lines.isEmpty()) {
            return;
        }
        StringBuilder source = new StringBuilder("""
                import org.apache.flink.api.common.state.*;
                import org.apache.flink.api.common.typeinfo.*;
                import org.apache.flink.api.java.typeutils.*;

                public final class %s {
                """.formatted(CLASS));
        for (int i = 0; i < lines.size(); i++) {
            source.append("    public static MapStateDescriptor<?, ?> state%d() { return %s; }\n".formatted(i, lines.get(i)));
        }
        try {
            Class<?> type = loaded(source.append("}\n").toString());
            for (int i = 0; i < lines.size(); i++) {
                COMPILED.put(lines.get(i), type.getMethod("state" + i));
            }
        } catch (IOException | ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    /** What the line makes; with stamped values if the state has them, as Flink's own time to live would wrap them. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static synchronized StateDescriptor<?, ?> descriptor(Spec.State state, SerializerConfig config) {
        MapStateDescriptor<?, ?> declared;
        try {
            declared = (MapStateDescriptor<?, ?>) COMPILED.get(state.java).invoke(null);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(state.java, e);
        }
        if (!declared.getName().equals(state.name)) {
            throw new IllegalArgumentException("expected a declaration of " + state.name + ", found " + state.java);
        }
        if (!state.stamped()) {
            return declared;
        }
        declared.initializeSerializerUnlessSet(new SerializerFactory() {
            @Override
            public <T> TypeSerializer<T> createSerializer(TypeInformation<T> type) {
                return type.createSerializer(config);
            }
        });
        TypeSerializer<?> value = declared.getValueSerializer();
        return new MapStateDescriptor(
                state.name,
                declared.getKeySerializer(),
                new TtlStateFactory.TtlSerializer<>(LongSerializer.INSTANCE, value));
    }

    private static Class<?> loaded(String source) throws IOException, ClassNotFoundException {
        URI place = URI.create("string:///" + CLASS + ".java");
        JavaFileObject file = new SimpleJavaFileObject(place, JavaFileObject.Kind.SOURCE) {
            @Override
            public CharSequence getCharContent(boolean ignoreEncodingErrors) {
                return source;
            }
        };
        Path folder = Files.createTempDirectory("declared");
        List<String> options = List.of("-d", folder.toString(), "-cp", System.getProperty("java.class.path"));
        StringWriter problems = new StringWriter();
        if (!ToolProvider.getSystemJavaCompiler().getTask(problems, null, null, options, null, List.of(file)).call()) {
            throw new IllegalArgumentException(problems + "\n" + source);
        }
        URL[] classes = {folder.toUri().toURL()};
        return Class.forName(CLASS, true, new URLClassLoader(classes, Declarations.class.getClassLoader()));
    }
}
