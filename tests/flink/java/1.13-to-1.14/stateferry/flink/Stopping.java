package stateferry.flink;

import java.util.concurrent.CompletableFuture;
import org.apache.flink.api.common.JobID;
import org.apache.flink.runtime.minicluster.MiniCluster;

/** Before Flink 1.15 each savepoint is canonical. */
final class Stopping {
    private Stopping() {}

    static CompletableFuture<String> withSavepoint(MiniCluster cluster, JobID job, String folder, String format) {
        return cluster.stopWithSavepoint(job, folder, false);
    }
}
