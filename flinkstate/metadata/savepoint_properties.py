"""The properties in `_metadata`: an object that Java has serialized. They say what a snapshot was taken as."""

from __future__ import annotations

from dataclasses import replace

from flinkstate.metadata.metadata import Metadata

_WITH_PROPERTIES, _WITH_NAMES = 4, 5
_CHECKPOINT_TYPE = b"org.apache.flink.runtime.checkpoint.CheckpointType"
_SAVEPOINT_TYPE = b"org.apache.flink.runtime.checkpoint.SavepointType"
# The names that Flink gives a savepoint with which a job is stopped: without and with a drain.
_STOPPED_WITH = (b"Suspend Savepoint", b"Terminate Savepoint")

# As Flink 1.20 and 2.3 write them for a canonical savepoint of a job that goes on.
CANONICAL_SAVEPOINT = (
    b"\xac\xed\x00\x05sr\x008org.apache.flink.runtime.checkpoint.CheckpointProperties"
    b"\x00\x00\x00\x00\x00\x00\x00\x02\x02\x00\x08Z\x00\x10discardCancelledZ\x00\rdiscardFailedZ\x00\x0fdiscardFinished"
    b"Z\x00\x0fdiscardSubsumedZ\x00\x10discardSuspendedZ\x00\x06forcedZ\x00\tunclaimedL\x00\x0echeckpointType"
    b"t\x002Lorg/apache/flink/runtime/checkpoint/SnapshotType;xp\x00\x00\x00\x00\x00\x01\x00"
    b"sr\x001" + _SAVEPOINT_TYPE + b"\xa0\x87\xd3\x08\xa4X\x14\xb8\x02\x00\x03"
    b"L\x00\nformatTypet\x005Lorg/apache/flink/core/execution/SavepointFormatType;L\x00\x04namet\x00\x12Ljava/lang/String;"
    b"L\x00\x14postCheckpointActiont\x00HLorg/apache/flink/runtime/checkpoint/SavepointType$PostCheckpointAction;xp"
    b"~r\x003org.apache.flink.core.execution.SavepointFormatType\x00\x00\x00\x00\x00\x00\x00\x00\x12\x00\x00"
    b"xr\x00\x0ejava.lang.Enum\x00\x00\x00\x00\x00\x00\x00\x00\x12\x00\x00xpt\x00\tCANONICALt\x00\tSavepoint"
    b"~r\x00Forg.apache.flink.runtime.checkpoint.SavepointType$PostCheckpointAction"
    b"\x00\x00\x00\x00\x00\x00\x00\x00\x12\x00\x00xq\x00~\x00\tt\x00\x04NONE"
)

_NATIVE = b"t\x00\x06NATIVE"
NATIVE_SAVEPOINT = CANONICAL_SAVEPOINT.replace(b"t\x00\tCANONICAL", _NATIVE)


def in_version(metadata: Metadata, version: int) -> Metadata:
    """Returns `_metadata` as it is in another version: with properties from 4 on, with names of operators from 5 on."""
    properties = metadata.properties or (CANONICAL_SAVEPOINT if version >= _WITH_PROPERTIES else b"")
    operators = metadata.operators
    if version < _WITH_NAMES:
        operators = tuple(replace(one, name=None, uid=None) if one.name or one.uid else one for one in operators)
    return replace(metadata, version=version, operators=operators, properties=properties)


def native_properties(metadata: Metadata) -> bytes:
    """The properties of a native savepoint that is made of the snapshot."""
    return NATIVE_SAVEPOINT if metadata.properties else b""


def canonical_properties(metadata: Metadata) -> bytes:
    """The properties of a canonical savepoint that is made of the snapshot: its own, if it was taken as one."""
    return CANONICAL_SAVEPOINT if metadata.properties and not is_canonical(metadata) else metadata.properties


def stops_job(metadata: Metadata) -> bool:
    """Whether the job was stopped with the savepoint; false if it doesn't say."""
    return any(name in metadata.properties for name in _STOPPED_WITH)


def is_savepoint(metadata: Metadata) -> bool:
    """Whether the snapshot was taken as a savepoint; true also if it doesn't say."""
    return _CHECKPOINT_TYPE not in metadata.properties


def is_canonical(metadata: Metadata) -> bool:
    """Whether the snapshot was taken as a canonical savepoint; if it doesn't say, whether no state is native."""
    native = any(task.native_keyed is not None for operator in metadata.operators for task in operator.subtasks)
    return not native and is_savepoint(metadata) and _NATIVE not in metadata.properties
