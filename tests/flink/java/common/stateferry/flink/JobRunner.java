package stateferry.flink;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.execution.ExecutionState;
import org.apache.flink.runtime.executiongraph.AccessExecutionVertex;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobmaster.JobResult;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;

/** Runs jobs one after another in one cluster inside this JVM, started when the first job needs it. */
final class JobRunner {
    private static final int SLOTS = 64;
    private static final long POLL_MILLIS = 10;
    private static final Duration TIMERS_PATIENCE = Duration.ofSeconds(20);
    private final Path scratch;
    private final Duration patience;
    private MiniCluster cluster;

    JobRunner(Path scratch, Duration patience) {
        this.scratch = scratch;
        this.patience = patience;
    }

    /** Runs a job that writes its contents, over those of an earlier savepoint if there is one; answers with the path. */
    String make(Spec.Job job, Path earlier, String format, Path target, Path expected) throws Exception {
        try (Board board = new Board(UUID.randomUUID().toString(), true, expected)) {
            JobID id = start(board, job, earlier, false);
            try {
                return savepoint(id, job, format, target, board);
            } catch (ExecutionException e) {
                // That of the job says more than that of its savepoint.
                cluster().requestJobResult(id).get(patience.toSeconds(), TimeUnit.SECONDS).getSerializedThrowable()
                        .ifPresent(e::addSuppressed);
                throw e;
            }
        }
    }

    private String savepoint(JobID id, Spec.Job job, String format, Path target, Board board) throws Exception {
        for (int i = 0; i < job.operators.size(); i++) {
            Spec.Operator operator = job.operators.get(i);
            if (operator.type.equals("window")) {
                Lines lines = new Lines(operator, board::write);
                WindowContents.expect(job, operator, i, maxParallelism(job, operator), lines);
            }
            KeepingSink.expect(operator, new Lines(operator, board::write));
            if (Joined.isOne(operator)) {
                Joined.expect(job, operator, maxParallelism(job, operator), new Lines(operator, board::write));
            }
        }
        awaitExecution(id, job);
        for (int i = 1; i < job.rounds; i++) {
            cluster().triggerCheckpoint(id).get(patience.toSeconds(), TimeUnit.SECONDS);
        }
        return snapshot(id, format, target);
    }

    private String snapshot(JobID id, String format, Path target) throws Exception {
        if (format.equals("CHECKPOINT")) {
            String path = cluster().triggerCheckpoint(id).get(patience.toSeconds(), TimeUnit.SECONDS);
            cancel(id);
            return path;
        }
        SavepointFormatType type = SavepointFormatType.valueOf(format);
        String path = cluster().stopWithSavepoint(id, target.toUri().toString(), false, type)
                .get(patience.toSeconds(), TimeUnit.SECONDS);
        cluster().requestJobResult(id).get(patience.toSeconds(), TimeUnit.SECONDS);
        return path;
    }

    /** Restores a job and stops it with another snapshot of the same contents; answers with its path. */
    String carry(Spec.Job job, Path savepoint, boolean claim, String format, Path target) throws Exception {
        try (Board board = new Board(UUID.randomUUID().toString(), false, target.resolve("observed"))) {
            JobID id = start(board, job, savepoint, claim);
            awaitExecution(id, job);
            return snapshot(id, format, target);
        }
    }

    /** Restores a job and has it show all it holds; answers with the number of timers that were due but didn't fire. */
    int restore(Spec.Job job, Path savepoint, Path observed) throws Exception {
        try (Board board = new Board(UUID.randomUUID().toString(), false, observed)) {
            JobID id = start(board, job, savepoint, false);
            board.watermarkWanted = true;
            long end = System.nanoTime() + TIMERS_PATIENCE.toNanos();
            await(id, "its timers", () -> board.timersDue.get() <= 0 || System.nanoTime() > end);
            cancel(id);
            return board.timersDue.get();
        }
    }

    /** Runs a job that does what a script says, from a savepoint if there is one; answers with the savepoint it leaves. */
    String jobSide(JobSide.Script script, Path savepoint, Path target, Path observed) throws Exception {
        Spec.Job settings = new Spec.Job();
        settings.backend = script.backend;
        try (Board board = new Board(UUID.randomUUID().toString(), false, observed)) {
            JobGraph graph = JobSide.graph(board.id(), script, configuration(settings));
            Set<String> reports = Set.of(Board.reportOf("calls", 0), Board.reportOf(JobSide.UID, 0));
            JobID id = submit(board, graph, savepoint, false, reports);
            awaitExecution(id, settings);
            return snapshot(id, "CANONICAL", target);
        }
    }

    private JobID start(Board board, Spec.Job job, Path savepoint, boolean claim) throws Exception {
        Topology topology = new Topology(board.id(), job);
        JobGraph graph = topology.graph(configuration(job));
        return submit(board, graph, savepoint, claim, topology.reports(savepoint != null));
    }

    private JobID submit(Board board, JobGraph graph, Path savepoint, boolean claim, Set<String> reports)
            throws Exception {
        if (savepoint != null) {
            String path = savepoint.toUri().toString();
            graph.setSavepointRestoreSettings(ClaimMode.of(path, claim));
        }
        JobID id = cluster().submitJob(graph).get(patience.toSeconds(), TimeUnit.SECONDS).getJobID();
        await(id, "the reports of " + reports, () -> board.hasReports(reports));
        return id;
    }

    private Configuration configuration(Spec.Job job) {
        Configuration out = new Configuration();
        out.setString("state.backend.type", job.backend);
        out.setString("state.backend.rocksdb.memory.managed", "false");
        out.setString("state.backend.rocksdb.localdir", scratch.resolve("rocksdb").toString());
        out.setString("execution.checkpointing.storage", "filesystem");
        out.setString("execution.checkpointing.dir", scratch.resolve("checkpoints").toUri().toString());
        out.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        out.setString("execution.checkpointing.data-inline-threshold", job.inlineThreshold + "b");
        out.setString("execution.checkpointing.snapshot-compression", Boolean.toString(job.snappy));
        out.setString("restart-strategy.type", "none");
        job.settings.forEach(out::setString);
        return out;
    }

    /** Subtasks report before Flink takes them for running, and end some time after their last report. */
    private void awaitExecution(JobID id, Spec.Job job) throws Exception {
        await(id, "all subtasks running, or finished if they are to", () -> {
            for (AccessExecutionVertex vertex : vertices(id)) {
                ExecutionState wanted = ends(vertex, job) ? ExecutionState.FINISHED : ExecutionState.RUNNING;
                if (vertex.getExecutionState() != wanted) {
                    return false;
                }
            }
            return true;
        });
    }

    /** By the task's name: Flink 2 chains an operator to its own source, Flink 1 runs the two apart. */
    private static boolean ends(AccessExecutionVertex vertex, Spec.Job job) {
        return job.operators.stream().anyMatch(operator -> vertex.getParallelSubtaskIndex() < operator.finished
                && vertex.getTaskNameWithSubtaskIndex().contains(operator.uid));
    }

    private Iterable<? extends AccessExecutionVertex> vertices(JobID id) {
        try {
            return cluster().getExecutionGraph(id).get(patience.toSeconds(), TimeUnit.SECONDS).getAllExecutionVertices();
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    private void await(JobID id, String what, BooleanSupplier reached) throws Exception {
        long end = System.nanoTime() + patience.toNanos();
        while (!reached.getAsBoolean()) {
            JobStatus status = cluster().getJobStatus(id).get(patience.toSeconds(), TimeUnit.SECONDS);
            if (status.isGloballyTerminalState()) {
                JobResult result = cluster().requestJobResult(id).get(patience.toSeconds(), TimeUnit.SECONDS);
                result.toJobExecutionResult(getClass().getClassLoader());
                throw new IllegalStateException("expected " + what + ", but the job is " + status);
            }
            if (System.nanoTime() > end) {
                cancel(id);
                throw new IllegalStateException("expected " + what + " within " + patience + ", the job is " + status);
            }
            Thread.sleep(POLL_MILLIS);
        }
    }

    private void cancel(JobID id) throws Exception {
        cluster().cancelJob(id).get(patience.toSeconds(), TimeUnit.SECONDS);
        cluster().requestJobResult(id).get(patience.toSeconds(), TimeUnit.SECONDS);
    }

    private static int maxParallelism(Spec.Job job, Spec.Operator operator) {
        if (operator.maxParallelism != null) {
            return operator.maxParallelism;
        }
        if (job.maxParallelism != null) {
            return job.maxParallelism;
        }
        int parallelism = operator.parallelism == null ? job.parallelism : operator.parallelism;
        return KeyGroupRangeAssignment.computeDefaultMaxParallelism(parallelism);
    }

    private MiniCluster cluster() throws Exception {
        if (cluster == null) {
            Configuration configuration = new Configuration();
            configuration.setString("io.tmp.dirs", scratch.toString());
            configuration.setString("taskmanager.memory.network.max", "256mb");
            configuration.setString("taskmanager.memory.network.min", "256mb");
            configuration.setString("rest.bind-address", "127.0.0.1");
            configuration.setString("rest.address", "127.0.0.1");
            configuration.setString("jobmanager.bind-host", "127.0.0.1");
            configuration.setString("taskmanager.bind-host", "127.0.0.1");
            cluster = new MiniCluster(new MiniClusterConfiguration.Builder()
                    .setConfiguration(configuration)
                    .setNumTaskManagers(1)
                    .setNumSlotsPerTaskManager(SLOTS)
                    .setCommonBindAddress("127.0.0.1")
                    .withRandomPorts()
                    .build());
            cluster.start();
        }
        return cluster;
    }
}
