"""What stands in the way of forgetting, and what forgetting stands in the way of."""

from __future__ import annotations

from headwater.errors.process import ProcessError


class AppRunning(ProcessError):
    """Forgetting takes away checkpoints and stores, which an app that runs is about to write again."""

    def __init__(self, *, folder: str) -> None:
        super().__init__(
            f"an app is running over {folder}, or is being rebuilt; nothing was forgotten",
            do="Stop it (Ctrl-C or SIGTERM) and call this again; --dry-run works meanwhile. "
            "Without --app it can start again as soon as this has ended, and builds its views while it serves",
        )
        self.folder = folder


class ForgettingUnderWay(ProcessError):
    def __init__(self, *, folder: str) -> None:
        super().__init__(
            f"records are just being forgotten in {folder}; nothing was started",
            do="Wait until `headwater topic forget` has ended, then start again",
        )
        self.folder = folder


class StillAtTheSource(ProcessError):
    """A row that a capture would bring back, or take away once more, with its next change."""

    def __init__(self, *, topic: str) -> None:
        super().__init__(
            f"topic {topic!r} is captured, and the row is still in the database's table; nothing was forgotten",
            do="Delete it there, let the capture bring the deletion (`headwater capture run`), then call this again",
        )
        self.topic = topic


class NotASource(ProcessError):
    """Forgetting in what a pipeline makes: it would come again from the topics that the pipeline reads."""

    def __init__(self, *, topic: str, made_by: str, reads: tuple[str, ...]) -> None:
        super().__init__(
            f"topic {topic!r} is made by {made_by!r}, which would make the same records again; nothing was forgotten",
            do=f"Forget in what it reads: {', '.join(reads) or 'see `headwater view versions`'}",
        )
        self.topic, self.made_by, self.reads = topic, made_by, reads
