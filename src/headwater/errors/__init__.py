"""One tree of errors. Each takes fields, writes its own message (what, where, what to do next) and pickles.

Families follow the rooms. Foreign exceptions are translated once, at the adapter that meets them; nothing is decided by
the text of a message.
"""

from headwater.errors.codes import CODES, codes
from headwater.errors.consumers import (
    BadOffset,
    GroupNotFound,
    LeaseLost,
    NotAMember,
    QueueMismatch,
    QueueNotFound,
    Rebalanced,
)
from headwater.errors.log import (
    BadLogUrl,
    BadName,
    BadPartition,
    BadPosition,
    Busy,
    Fenced,
    Full,
    LogError,
    ProgressBroken,
    SchemaRefused,
    TopicMismatch,
    TopicNotFound,
    VersionConflict,
)
from headwater.errors.process import CheckpointLost, JavaMissing, PipelineFailed, PlanChanged, ProcessError, SqlRefused
from headwater.errors.records import BadRecord, BadSchema
from headwater.errors.root import HeadwaterError
from headwater.errors.serve import (
    BadKey,
    BadRequest,
    NotAnInput,
    NotCovered,
    ServeError,
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

__all__ = [
    "CODES",
    "BackupFailed",
    "BadBackup",
    "BadKey",
    "BadLogUrl",
    "BadName",
    "BadOffset",
    "BadPartition",
    "BadPosition",
    "BadRecord",
    "BadRequest",
    "BadSchema",
    "Busy",
    "CheckpointLost",
    "Compacted",
    "Corrupt",
    "Fenced",
    "Full",
    "GroupNotFound",
    "HeadwaterError",
    "JavaMissing",
    "LeaseLost",
    "LogError",
    "Missed",
    "NewerFormat",
    "NotAMember",
    "NotAnInput",
    "NotCovered",
    "Pinned",
    "PipelineFailed",
    "PlanChanged",
    "ProcessError",
    "ProgressBroken",
    "QueueMismatch",
    "QueueNotFound",
    "Rebalanced",
    "SchemaRefused",
    "ServeError",
    "SqlRefused",
    "StorageFailed",
    "TargetNotEmpty",
    "TooLarge",
    "TopicMismatch",
    "TopicNotFound",
    "UpgradeBlocked",
    "UsageError",
    "VersionConflict",
    "ViewNotFound",
    "codes",
]
