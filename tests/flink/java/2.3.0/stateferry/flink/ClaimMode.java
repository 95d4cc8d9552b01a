package stateferry.flink;

import org.apache.flink.core.execution.RecoveryClaimMode;
import org.apache.flink.runtime.jobgraph.SavepointRestoreSettings;

/** Flink has changed the name of what says whose a snapshot is after a restore. */
final class ClaimMode {
    private ClaimMode() {}

    static SavepointRestoreSettings of(String path, boolean claim) {
        return SavepointRestoreSettings.forPath(path, false, claim ? RecoveryClaimMode.CLAIM : RecoveryClaimMode.NO_CLAIM);
    }
}
