package stateferry.flink;

import java.io.StringWriter;
import java.lang.reflect.Method;
import java.net.URI;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.ToolProvider;
import org.apache.flink.api.common.serialization.SerializerConfig;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.runtime.state.ttl.TtlStateFactory;

/** States declared by a line of Java each, which is compiled as it stands, among the imports that such lines need. */
final class Declarations {
    private static final String CLASS = "Pasted";
    private static final Map<String, Class<?>> COMPILED = new ConcurrentHashMap<>();

    private Declarations() {}

    /** What the line makes; with stamped values if the state has them, as Flink's own time to live would wrap them. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static StateDescriptor<?, ?> descriptor(Spec.State state, SerializerConfig config) {
        MapStateDescriptor<Object, Object> declared;
        try {
            Method method = COMPILED.computeIfAbsent(state.java, Declarations::compiled).getMethod("declared");
            declared = (MapStateDescriptor<Object, Object>) method.invoke(null);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(state.java, e);
        }
        if (!declared.getName().equals(state.name)) {
            throw new IllegalArgumentException("expected a declaration of " + state.name + ", found " + state.java);
        }
        if (!state.stamped()) {
            return declared;
        }
        declared.initializeSerializerUnlessSet(Serializing.with(config));
        return new MapStateDescriptor(
                state.name,
                declared.getKeySerializer(),
                new TtlStateFactory.TtlSerializer<>(LongSerializer.INSTANCE, declared.getValueSerializer()));
    }

    private static Class<?> compiled(String line) {
        String source = """
                import java.math.*;
                import java.time.*;
                import java.util.*;
                import org.apache.flink.api.common.state.*;
                import org.apache.flink.api.common.typeinfo.*;
                import org.apache.flink.api.java.tuple.*;

                public final class %s {
                    public static MapStateDescriptor<?, ?> declared() {
                        return %s;
                    }
                }
                """.formatted(CLASS, line.replaceFirst(";\\s*$", ""));
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        JavaFileObject file = new SimpleJavaFileObject(URI.create("string:///" + CLASS + ".java"), JavaFileObject.Kind.SOURCE) {
            @Override
            public CharSequence getCharContent(boolean ignoreEncodingErrors) {
                return source;
            }
        };
        StringWriter problems = new StringWriter();
        try {
            Path folder = Files.createTempDirectory("declaration");
            List<String> options = List.of("-d", folder.toString(), "-cp", System.getProperty("java.class.path"));
            if (!compiler.getTask(problems, null, null, options, null, List.of(file)).call()) {
                throw new IllegalArgumentException(problems + source);
            }
            return Class.forName(
                    CLASS, true, new URLClassLoader(new URL[] {folder.toUri().toURL()}, Declarations.class.getClassLoader()));
        } catch (java.io.IOException | ClassNotFoundException e) {
            throw new IllegalStateException(e);
        }
    }
}
