package stateferry.flink;

import java.util.List;
import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.core.fs.CloseableRegistry;
import org.apache.flink.runtime.jobgraph.JobVertexID;
import org.apache.flink.runtime.query.KvStateRegistry;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.LocalRecoveryConfig;
import org.apache.flink.runtime.state.UncompressedStreamCompressionDecorator;
import org.apache.flink.runtime.state.heap.HeapKeyedStateBackendBuilder;
import org.apache.flink.runtime.state.heap.HeapPriorityQueueSetFactory;
import org.apache.flink.runtime.state.metrics.LatencyTrackingStateConfig;
import org.apache.flink.runtime.state.metrics.SizeTrackingStateConfig;
import org.apache.flink.runtime.state.ttl.TtlTimeProvider;

/** A state backend without a job, whose clock the caller sets. */
final class HeapBackend {
    private static final KeyGroupRange ALL = KeyGroupRange.of(0, 0);

    private HeapBackend() {}

    static AbstractKeyedStateBackend<Long> make(TtlTimeProvider clock) throws Exception {
        return new HeapKeyedStateBackendBuilder<>(
                        new KvStateRegistry().createTaskRegistry(new JobID(), new JobVertexID()),
                        LongSerializer.INSTANCE,
                        HeapBackend.class.getClassLoader(),
                        1,
                        ALL,
                        new ExecutionConfig(),
                        clock,
                        LatencyTrackingStateConfig.disabled(),
                        SizeTrackingStateConfig.disabled(),
                        List.of(),
                        UncompressedStreamCompressionDecorator.INSTANCE,
                        LocalRecoveryConfig.BACKUP_AND_RECOVERY_DISABLED,
                        new HeapPriorityQueueSetFactory(ALL, 1, 16),
                        false,
                        new CloseableRegistry())
                .build();
    }
}
