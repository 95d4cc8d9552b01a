package stateferry.flink;

import java.util.concurrent.CompletableFuture;
import org.apache.flink.api.common.JobID;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.minicluster.MiniCluster;

/** Savepoints have two formats since Flink 1.15. */
final class Stopping {
    private Stopping() {}

    static CompletableFuture<String> withSavepoint(MiniCluster cluster, JobID job, String folder, String format) {
        return cluster.stopWithSavepoint(job, folder, false, SavepointFormatType.valueOf(format));
    }
}
