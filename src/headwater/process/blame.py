"""Of several pipelines in one Spark query, the one in which an error arose: said by the error, in its traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headwater.process.job import Job

_NOTE = "headwater: this was in the pipeline of producer "


@contextmanager
def blamed_on(job: Job) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"{_NOTE}{job.producer.name}")
        raise


def to_blame(told: str) -> str | None:
    """The name of the producer in the words of an error, after they have come through Spark."""
    _, found, rest = told.partition(_NOTE)
    return rest.split()[0] if found else None
