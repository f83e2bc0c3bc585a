"""`headwater group ...`: who reads a topic together, how far they are, and moving them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from headwater.cli.output import LOG, Json, LogUrl, write_rows
from headwater.errors import BadRequest, GroupNotFound, UsageError
from headwater.log import open_log
from headwater.log.groups import Groups, places
from headwater.log.opening import groups_of

cli = typer.Typer(no_args_is_help=True, help="Groups of consumers that share a topic's partitions.")
Name = Annotated[str, typer.Argument(help="The group's name.")]
TopicName = Annotated[str | None, typer.Option("--topic", help="Which topic, if the group reads several.")]


@cli.command("list")
def list_(log: LogUrl = LOG, as_json: Json = False) -> None:
    """All groups, with how many members live and how far behind they are."""
    groups = groups_of(open_log(log))
    rows = [
        {
            "group": group.name,
            "topic": group.topic,
            "members": group.members,
            "generation": group.generation,
            "lag": sum(row.lag for row in groups.lag(group.name, group.topic)),
        }
        for group in groups.groups()
    ]
    write_rows(rows, as_json=as_json)


@cli.command()
def lag(name: Name, topic: TopicName = None, log: LogUrl = LOG, as_json: Json = False) -> None:
    """How far a group is behind, a line a partition."""
    groups = groups_of(open_log(log))
    rows = [
        {
            "topic": each,
            "partition": row.partition,
            "committed": row.committed,
            "end": row.end,
            "lag": row.lag,
            "missed": row.missed,
            "member": row.member,
        }
        for each in ([topic] if topic else _topics(groups, name))
        for row in groups.lag(name, each)
    ]
    write_rows(rows, as_json=as_json)


@cli.command()
def reset(
    name: Name,
    topic: TopicName = None,
    to_start: Annotated[bool, typer.Option("--to-start", help="To the first record there is.")] = False,
    to_end: Annotated[bool, typer.Option("--to-end", help="Behind the last record.")] = False,
    to_offset: Annotated[list[str] | None, typer.Option(help="PARTITION=OFFSET; may be given several times.")] = None,
    to_time: Annotated[str | None, typer.Option(help="To what was appended since, e.g. 2024-05-01T12:00Z.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    log: LogUrl = LOG,
    as_json: Json = False,
) -> None:
    """Move a group. Its members, if it has any, go on from there; what they have not committed is refused."""
    if sum(map(bool, (to_start, to_end, to_offset, to_time))) != 1:
        raise UsageError(
            what="a group is reset to one place", do="Give one of --to-start, --to-end, --to-offset, --to-time"
        )
    opened = open_log(log)
    groups = groups_of(opened)
    topic = topic or _only_topic(groups, name)
    if to_offset:
        after = _offsets(to_offset)
    elif to_time:
        after = places(opened, topic, _moment(to_time))
    else:
        after = places(opened, topic, "start" if to_start else "end")
    before = groups.reset(name, topic, after, dry_run=dry_run)
    write_rows(
        [
            {"topic": topic, "partition": partition, "from": before[partition], "to": offset, "done": not dry_run}
            for partition, offset in after.items()
        ],
        as_json=as_json,
    )


@cli.command()
def remove(name: Name, topic: TopicName = None, log: LogUrl = LOG) -> None:
    """Forget a group that has no living members, so that it holds nothing back."""
    groups = groups_of(open_log(log))
    groups.remove(name, topic or _only_topic(groups, name))


def _topics(groups: Groups, name: str) -> list[str]:
    found = groups.groups()
    topics = [group.topic for group in found if group.name == name]
    if not topics:
        raise GroupNotFound(group=name, known=dict.fromkeys(group.name for group in found))
    return topics


def _only_topic(groups: Groups, name: str) -> str:
    topics = _topics(groups, name)
    if len(topics) > 1:
        raise UsageError(what=f"group {name!r} reads {', '.join(topics)}", do="Say which with --topic")
    return topics[0]


def _offsets(given: list[str]) -> dict[int, int]:
    offsets = {}
    for pair in given:
        partition, _, offset = pair.partition("=")
        if not (partition.isdecimal() and offset.isdecimal()):
            raise BadRequest(why=f"{pair!r} is not PARTITION=OFFSET", do="Write for example --to-offset 0=12")
        offsets[int(partition)] = int(offset)
    return offsets


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(why=f"{text!r} is not a time", do="Write it as 2024-05-01T12:00:00Z") from None
