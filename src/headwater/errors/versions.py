"""What is refused because of the versions that a view has."""

from __future__ import annotations

from headwater.errors.process import ProcessError


class PlanChanged(ProcessError):
    """Code that none of the view's versions was built with. It never runs on what another plan has made."""

    def __init__(self, *, view: str, details: tuple[str, ...]) -> None:
        changed = "; ".join(detail.partition("\n")[0] for detail in details) or "it has another fingerprint"
        super().__init__(
            f"view {view!r} has changed since it was built: {changed}",
            do=f"Nothing was run. `headwater view rebuild {view} --app FILE` builds the new version beside the old "
            "one; `headwater run FILE --plan` shows every change",
        )
        self.view, self.details = view, details


class NotCurrent(ProcessError):
    """Code of a version that is known, but is not the one that counts."""

    def __init__(self, *, view: str, version: int, state: str, current: int) -> None:
        what, do = {
            "building": (
                f"version {version} of view {view!r} is not built to the end, version {current} is current",
                f"`headwater view rebuild {view} --app FILE` goes on where it stopped",
            ),
            "built": (
                f"version {version} of view {view!r} is built but not current, version {current} is",
                f"Run `headwater view switch {view} --version {version} --app FILE`",
            ),
        }.get(
            state,
            (
                f"this code is version {version} of view {view!r}, version {current} is current",
                f"Deploy the newer code, or run `headwater view switch {view} --back --app FILE`",
            ),
        )
        super().__init__(what, do=do)
        self.view, self.version, self.state, self.current = view, version, state, current


class VersionRefused(ProcessError):
    """An act on a version that would leave views without what they read, or nothing current."""

    def __init__(self, *, view: str, why: str, do: str) -> None:
        super().__init__(f"view {view!r}: {why}; nothing was changed", do=do)
        self.view, self.why = view, why


class VersionsRaced(ProcessError):
    """Two processes changed versions at once; the other one won."""

    def __init__(self, *, view: str) -> None:
        super().__init__(
            f"another process has changed the versions of views at this moment; those of {view!r} were not changed",
            do=f"Look at them with `headwater view versions {view} --app FILE`, then try again",
        )
        self.view = view


class InputsGone(ProcessError):
    """A rebuild that could not read all that the version before it has read."""

    def __init__(self, *, view: str, topic: str, partition: int, first: int) -> None:
        super().__init__(
            f"view {view!r} cannot be built again as it was: of its input {topic!r}, partition {partition}, "
            f"what was before offset {first} has been removed",
            do="Say --from-retained to build it from what is left",
        )
        self.view, self.topic, self.partition, self.first = view, topic, partition, first
