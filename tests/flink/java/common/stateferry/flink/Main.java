package stateferry.flink;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import stateferry.flink.types.Json;

/** Takes one command per line of JSON from standard input, answers each with one line, and ends with its input. */
public final class Main {
    private Main() {}

    /** Arguments: a directory for temporary files, and how many seconds a job may take for one step. */
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BlockingQueue<String> commands = new LinkedBlockingQueue<>();
        Thread reader = new Thread(() -> readCommands(commands), "commands");
        reader.setDaemon(true);
        reader.start();
        JobRunner jobs = new JobRunner(Path.of(arguments[0]), Duration.ofSeconds(Long.parseLong(arguments[1])));
        while (true) {
            ObjectNode answer = Json.NODES.objectNode();
            try {
                answer(jobs, Json.parse(commands.take()), answer);
            } catch (Throwable problem) {
                StringWriter trace = new StringWriter();
                problem.printStackTrace(new PrintWriter(trace));
                answer.put("error", trace.toString());
            }
            answers.println(Json.text(answer));
            answers.flush();
        }
    }

    /** Whoever gives the commands is gone when they end, also in the midst of a job. */
    private static void readCommands(BlockingQueue<String> commands) {
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            String line;
            while ((line = lines.readLine()) != null) {
                commands.add(line);
            }
        } catch (IOException e) {
            e.printStackTrace();
        } finally {
            Runtime.getRuntime().halt(0);
        }
    }

    private static void answer(JobRunner jobs, JsonNode command, ObjectNode answer) throws Exception {
        String name = command.path("command").asText();
        switch (name) {
            case "make" -> answer.put("savepoint", jobs.make(
                    Json.bind(command.get("job"), Spec.Job.class),
                    command.get("earlier").isNull() ? null : path(command, "earlier"),
                    command.get("format").asText(),
                    path(command, "target"),
                    path(command, "expected")));
            case "carry" -> answer.put("savepoint", jobs.carry(
                    Json.bind(command.get("job"), Spec.Job.class),
                    path(command, "savepoint"),
                    command.get("claim").asBoolean(),
                    command.get("format").asText(),
                    path(command, "target")));
            case "job_side" -> answer.put("savepoint", jobs.jobSide(
                    Json.bind(command.get("script"), JobSide.Script.class),
                    command.get("savepoint").isNull() ? null : path(command, "savepoint"),
                    path(command, "target"),
                    path(command, "observed")));
            case "restore" -> answer.put("timers_missed", jobs.restore(
                    Json.bind(command.get("job"), Spec.Job.class),
                    path(command, "savepoint"),
                    path(command, "observed")));
            case "rewrite_metadata" -> MetadataRewriter.rewrite(
                    path(command, "savepoint"),
                    path(command, "target"),
                    command.get("version").asInt(),
                    command.get("absolute").asBoolean());
            case "database" -> Databases.write(
                    command, path(command, "scratch"), path(command, "target"), path(command, "expected"));
            case "chain" -> Chains.write(command, path(command, "scratch"));
            case "show" -> Chains.show(path(command, "database"), path(command, "expected"));
            case "samples" -> SerializerSamples.of(command, answer);
            case "keys" -> KeyJudge.keys(command, path(command, "target"));
            case "key_group_ranges" -> KeyJudge.ranges(command, path(command, "target"));
            case "default_max_parallelisms" -> KeyJudge.defaults(path(command, "target"));
            case "redistribute" -> answer.set("results", OperatorStateJudge.redistribute(command.get("cases")));
            case "ttl_expired" -> TtlJudge.expired(path(command, "triples"), path(command, "target"));
            case "ttl_reads" -> answer.set("results", TtlJudge.reads(command.get("cases")));
            default -> throw new IllegalArgumentException("expected a command, found '" + name + "'");
        }
    }

    private static Path path(JsonNode command, String field) {
        return Path.of(command.get(field).asText());
    }
}
