package stateferry.flink;

import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.JobID;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobgraph.SavepointRestoreSettings;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Runs a job of Flink SQL, or one of CEP, on a part of the orders; writes what it has said, and stops it with a savepoint.
 *
 * <p>Its arguments are pairs {@code name=value}: {@code job} (sql or cep), {@code from} and {@code to} (which orders),
 * {@code parallelism}, {@code backend}, {@code format}, {@code target} (the folder of the savepoint), {@code said} (a
 * file), {@code scratch} and, if they are wanted, {@code savepoint} (from which it starts), {@code migrated} (whether it
 * has a MapState), {@code objects} (whether the events of CEP are POJOs) and {@code queries}. It prints the path of the savepoint.
 */
public final class Tables {
    private static final int SLOTS = 8;
    private static final int MAX_PARALLELISM = 16;
    private static final long POLL_MILLIS = 50;
    private static final long PATIENCE_SECONDS = 180;

    /** What the job has said, as lines. All of the job runs in this JVM. */
    static final ConcurrentLinkedQueue<String> SAID = new ConcurrentLinkedQueue<>();

    private Tables() {}

    public static void main(String[] arguments) {
        PrintStream answers = System.out;
        System.setOut(System.err);
        int code = 1;
        try {
            answers.println(savepoint(arguments));
            answers.flush();
            code = 0;
        } catch (Throwable problem) {
            problem.printStackTrace();
        }
        // Threads of the cluster's may stay.
        Runtime.getRuntime().halt(code);
    }

    private static String savepoint(String[] arguments) throws Exception {
        Properties asked = new Properties();
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            asked.setProperty(parts[0], parts[1]);
        }
        Configuration settings = settings(asked);
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        environment.setParallelism(Integer.parseInt(asked.getProperty("parallelism")));
        environment.setMaxParallelism(MAX_PARALLELISM);
        Orders orders = new Orders(
                Integer.parseInt(asked.getProperty("from")), Integer.parseInt(asked.getProperty("to")));
        boolean isMigrated = Boolean.parseBoolean(asked.getProperty("migrated", "false"));
        if (asked.getProperty("job").equals("sql")) {
            String queries = asked.getProperty("queries", "");
            SqlJob.build(environment, orders, isMigrated, queries.isEmpty() ? List.of() : List.of(queries.split(",")));
        } else {
            CepJob.build(environment, orders, isMigrated, Boolean.parseBoolean(asked.getProperty("objects", "false")));
        }
        JobGraph graph = environment.getStreamGraph().getJobGraph();
        if (asked.containsKey("savepoint")) {
            String savepoint = Path.of(asked.getProperty("savepoint")).toUri().toString();
            graph.setSavepointRestoreSettings(SavepointRestoreSettings.forPath(savepoint, false));
        }
        return run(graph, settings, asked);
    }

    private static Configuration settings(Properties asked) {
        Configuration out = new Configuration();
        Map.of(
                        "state.backend.type", asked.getProperty("backend"),
                        "state.backend.rocksdb.memory.managed", "false",
                        "execution.checkpointing.data-inline-threshold", "0b",
                        "restart-strategy.type", "none",
                        "table.exec.state.ttl", asked.getProperty("ttl", "1 d"),
                        "table.exec.uid.generation", "ALWAYS",
                        "io.tmp.dirs", asked.getProperty("scratch"),
                        "taskmanager.memory.network.max", "128mb",
                        "taskmanager.memory.network.min", "128mb",
                        "rest.bind-address", "127.0.0.1")
                .forEach(out::setString);
        out.setString("rest.address", "127.0.0.1");
        out.setString("execution.checkpointing.storage", "filesystem");
        out.setString("execution.checkpointing.dir", Path.of(asked.getProperty("scratch")).toUri().toString());
        return out;
    }

    private static String run(JobGraph graph, Configuration settings, Properties asked) throws Exception {
        MiniClusterConfiguration described = new MiniClusterConfiguration.Builder()
                .setConfiguration(settings)
                .setNumTaskManagers(1)
                .setNumSlotsPerTaskManager(SLOTS)
                .setCommonBindAddress("127.0.0.1")
                .withRandomPorts()
                .build();
        MiniCluster cluster = new MiniCluster(described);
        cluster.start();
        JobID id = cluster.submitJob(graph).get(PATIENCE_SECONDS, TimeUnit.SECONDS).getJobID();
        awaitEnd(cluster, id);
        String path = cluster.stopWithSavepoint(
                        id,
                        Path.of(asked.getProperty("target")).toUri().toString(),
                        false,
                        SavepointFormatType.valueOf(asked.getProperty("format")))
                .get(PATIENCE_SECONDS, TimeUnit.SECONDS);
        List<String> said = new ArrayList<>(SAID);
        Files.write(Path.of(asked.getProperty("said")), said);
        return path;
    }

    /** Waits until the watermark behind the last order, the only one, has come through each way of the job. */
    private static void awaitEnd(MiniCluster cluster, JobID id) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        while (!Sayer.haveAllWatermarks()) {
            if (cluster.getJobStatus(id).get(PATIENCE_SECONDS, TimeUnit.SECONDS).isGloballyTerminalState()) {
                cluster.requestJobResult(id)
                        .get(PATIENCE_SECONDS, TimeUnit.SECONDS)
                        .toJobExecutionResult(Tables.class.getClassLoader());
                throw new IllegalStateException("expected a job that goes on, but it has ended");
            }
            if (System.nanoTime() > end) {
                throw new IllegalStateException("expected the last order at the end of the job in time");
            }
            Thread.sleep(POLL_MILLIS);
        }
    }
}
