"""The one table from error to HTTP status and exit code; the nearest ancestor counts."""

from __future__ import annotations

from headwater.errors.capture import BadCapture, CaptureGap, SourceLost, SourceRefused, TableChanged
from headwater.errors.consumers import (
    BadOffset,
    GroupNotFound,
    LeaseLost,
    NotAMember,
    QueueMismatch,
    QueueNotFound,
    Rebalanced,
)
from headwater.errors.forgetting import AppRunning, ForgettingUnderWay, NotASource, StillAtTheSource
from headwater.errors.log import (
    BadLogUrl,
    BadName,
    BadPartition,
    BadPosition,
    Busy,
    Fenced,
    Full,
    ProgressBroken,
    SchemaRefused,
    TopicMismatch,
    TopicNotFound,
    VersionConflict,
)
from headwater.errors.process import (
    BadFrame,
    BadFunction,
    CheckpointLost,
    FunctionFailed,
    JavaMissing,
    PipelineFailed,
    SparkLost,
    SqlRefused,
)
from headwater.errors.records import BadRecord, BadSchema
from headwater.errors.root import HeadwaterError
from headwater.errors.serve import (
    BadKey,
    BadRequest,
    NotAnInput,
    NotCovered,
    TooLarge,
    UsageError,
    ViewNotFound,
)
from headwater.errors.storage import (
    BackupFailed,
    BadBackup,
    Compacted,
    Corrupt,
    Missed,
    NewerFormat,
    Pinned,
    StorageFailed,
    TargetNotEmpty,
    UpgradeBlocked,
)
from headwater.errors.versions import InputsGone, NotCurrent, PlanChanged, VersionRefused, VersionsRaced

CODES: dict[type[HeadwaterError], tuple[int, int]] = {
    HeadwaterError: (500, 1),
    BadSchema: (422, 2),
    BadRecord: (422, 2),
    BadLogUrl: (500, 2),
    BadName: (422, 2),
    TopicNotFound: (404, 3),
    TopicMismatch: (409, 4),
    BadPartition: (422, 2),
    BadPosition: (422, 2),
    Fenced: (409, 5),
    ProgressBroken: (409, 5),
    Busy: (503, 6),
    SchemaRefused: (409, 4),
    VersionConflict: (409, 5),
    Full: (503, 6),
    Missed: (410, 5),
    Compacted: (410, 5),
    Pinned: (409, 5),
    Corrupt: (500, 7),
    StorageFailed: (507, 7),
    NewerFormat: (500, 7),
    UpgradeBlocked: (503, 6),
    BackupFailed: (500, 7),
    BadBackup: (500, 7),
    TargetNotEmpty: (409, 4),
    BadOffset: (422, 2),
    GroupNotFound: (404, 3),
    NotAMember: (409, 5),
    Rebalanced: (409, 5),
    QueueNotFound: (404, 3),
    QueueMismatch: (409, 4),
    LeaseLost: (409, 5),
    BadCapture: (422, 2),
    SourceRefused: (409, 4),
    SourceLost: (503, 6),
    CaptureGap: (410, 5),
    TableChanged: (409, 4),
    SqlRefused: (422, 2),
    BadFrame: (422, 2),
    BadFunction: (422, 2),
    PlanChanged: (409, 4),
    NotCurrent: (409, 4),
    VersionRefused: (409, 4),
    VersionsRaced: (409, 5),
    InputsGone: (410, 5),
    AppRunning: (409, 6),
    ForgettingUnderWay: (503, 6),
    StillAtTheSource: (409, 5),
    NotASource: (422, 2),
    CheckpointLost: (500, 5),
    PipelineFailed: (500, 1),
    FunctionFailed: (500, 1),
    JavaMissing: (500, 8),
    SparkLost: (500, 8),
    ViewNotFound: (404, 3),
    BadKey: (422, 2),
    NotCovered: (504, 6),
    NotAnInput: (422, 2),
    BadRequest: (400, 2),
    TooLarge: (413, 2),
    UsageError: (400, 2),
}


def codes(error: HeadwaterError) -> tuple[int, int]:
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)
