"""Rules for a user's transform of document rows, checked before anything runs.

Refuses a transform that moves document rows between tasks, by looking at Spark's own plan.

A document's chunks and its end row must reach one writer, together and in order. So on the way from
our source to the writer (the path in the plan tree; what joins it from the side is free) there may
be no exchange, sort, aggregate, window, limit, union or sample. Allowed:

* a broadcast of some *other* table that the documents are joined with: it does not move documents. Documents that are
  rows of a table begin at such a join, with the changes that a wave has of them; and those of rows of several tables
  where these are brought together, behind such joins;
* `coalesce`, which puts whole partitions behind each other: documents stay whole and in order.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from instep.error_transport import explained
from instep.errors import InstepError, UserError
from instep.own_code import send
from instep.own_faults import is_stop
from instep.pipeline.engine import sparkapi

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


_TREE_LINE = re.compile(r"^(?P<indent>(?:[: ]  )*)(?:\+- |:- )?(?:\* ?)?(?P<name>[^\s(].*?) ?\((?P<number>\d+)\)$")
_DETAIL = re.compile(r"^\((?P<number>\d+)\) ")

#: Steps on the documents' path that are refused, by what their name contains, in the user's words.
_REFUSED = (
    ("Exchange", "repartition"),
    ("TakeOrdered", "orderBy with limit"),
    ("SortMergeJoin", "join"),
    ("ShuffledHashJoin", "join"),
    ("CartesianProduct", "join"),
    ("Aggregate", "groupBy, distinct or aggregate"),
    ("Window", "window function"),
    ("Sort", "sort"),
    ("Limit", "limit"),
    ("Union", "union"),
    ("Sample", "sample"),
    ("AQEShuffleRead", "repartition"),
    ("FlatMapGroups", "grouped map"),
    ("FlatMapCoGroups", "cogrouped map"),
)

#: Steps that Spark sorts for by itself: they are what the user wrote.
_SORTED_FOR = ("SortMergeJoin", "Aggregate", "Window", "FlatMapGroups", "FlatMapCoGroups", "Sample")


@dataclass(slots=True)
class Step:
    """One operator of the physical plan, with the details that `explain("formatted")` prints of it."""

    name: str
    number: int
    detail: str = ""
    children: list[Step] = field(default_factory=list)


def check_plan(explained: str, source: str) -> None:
    """Check that no step after `source` moves document rows. Raises `UserError` naming the first one.

    `explained` is the text of `explain("formatted")`, `source` the registered name of our source.
    """
    root = parse(explained)
    paths = list(_paths(root, source)) if root else []
    if not paths:
        raise UserError(
            "the transform's result does not come from the documents it was given",
            hint="Return the DataFrame that the transform receives, with columns added or changed.",
        )
    if len(paths) > 1:
        raise _refusal("self-join or union", "Spark's plan reads the documents more than once")
    path = paths[0]
    for position in range(len(path) - 1, -1, -1):
        words = _offence(path, position)
        if words is not None:
            raise _refusal(words, f"Spark's plan has {_spoken(path[position])}")


def check_rows(explained: str, source: str) -> None:
    """Check that the rows of a table get their changes by a broadcast, and are not moved. Raises `UserError` if not."""
    root = parse(explained)
    paths = list(_paths(root, source)) if root else []
    moved = [_spoken(step) for path in paths for place, step in enumerate(path) if _offence(path, place)]
    if len(paths) != 1 or moved:
        raise UserError(
            f"Spark would move the rows of the table between tasks{f': {moved[0]}' if moved else ''}",
            hint="Changes are broadcast to them: is spark.sql.optimizer.disableHints set?",
        )


def parse(explained: str) -> Step | None:
    """The tree of the main physical plan; None when the text has none."""
    lines = explained.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith("== Physical Plan ==")), None)
    if start is None:
        return None
    root: Step | None = None
    open_steps: list[tuple[int, Step]] = []
    steps: dict[int, Step] = {}
    rest = start + 1
    for rest in range(start + 1, len(lines)):
        line = lines[rest]
        if not line.strip():
            break
        match = _TREE_LINE.match(line)
        if match is None:
            continue
        step = Step(match["name"].strip(), int(match["number"]))
        steps[step.number] = step
        depth = len(line) - len(line.lstrip(" :+-"))
        while open_steps and open_steps[-1][0] >= depth:
            open_steps.pop()
        if open_steps:
            open_steps[-1][1].children.append(step)
        elif root is None:
            root = step
        open_steps.append((depth, step))
    _add_details(lines[rest:], steps)
    return root


def _add_details(lines: list[str], steps: dict[int, Step]) -> None:
    current: Step | None = None
    for line in lines:
        if line.startswith("====="):
            return
        match = _DETAIL.match(line)
        if match:
            current = steps.get(int(match["number"]))
        elif current and line.startswith(("Arguments:", "Right keys")):
            current.detail = line.partition(":")[2].strip()


def _paths(step: Step, source: str) -> list[list[Step]]:
    """List every path from the root down to where the documents begin."""
    if _puts_together(step, source):
        return [[]]
    if ("Scan" in step.name and source in step.name) or _joins_changes(step, source):
        return [[step]]
    return [[step, *path] for child in step.children for path in _paths(child, source)]


def _joins_changes(step: Step, source: str) -> bool:
    """Whether the rows of a table get their changes here, which are broadcast to them."""
    return step.name.startswith("BroadcastHashJoin") and "BuildRight" in step.name and source in step.detail


def _puts_together(step: Step, source: str) -> bool:
    """Whether rows of several tables are brought together here that are one document."""
    return step.name.startswith("Exchange") and f"hashpartitioning({source}_document_id" in step.detail


def _offence(path: list[Step], position: int) -> str | None:
    step = path[position]
    words = next((words for part, words in _REFUSED if part in step.name), None)
    if words == "sort" and position and any(part in path[position - 1].name for part in _SORTED_FOR):
        return _offence(path, position - 1)
    if words is None or not step.name.endswith("Exchange") or "REPARTITION" in step.detail:
        return words
    if "Broadcast" in step.name:
        return "join that broadcasts the documents"
    if step.detail.startswith("rangepartitioning"):
        return "sort"
    # Spark put this exchange in on behalf of a step above it (a merge join sorts in between): that is
    # what the user wrote.
    above = (words for other in reversed(path[:position]) for part, words in _REFUSED if part in other.name)
    return next((found for found in above if found not in ("repartition", "sort")), words)


def _spoken(step: Step) -> str:
    return f"{step.name} {step.detail}".strip()[:200]


def _refusal(words: str, step: str) -> UserError:
    return UserError(
        f"the transform moves document rows between tasks: {words} ({step})",
        hint=(
            "Chunks of one document must stay together and in order. Add or change columns (withColumn, filter, "
            "mapInArrow, join with broadcast(small_table)); do the rest before the source or after the index."
        ),
    )


Transform: TypeAlias = Callable[[Any], Any]


def rehearsed(session: SparkSession, transform: Transform, schema: pa.Schema | None = None) -> list[str]:
    """Names of the columns that a transform adds, tried on no documents at all. Raises `UserError` for one that no wave
    could run.
    """
    from instep.pipeline.documents.rows import CHUNK_SCHEMA
    from instep.pipeline.engine.datasource import empty_source

    name = f"instep_{uuid.uuid4().hex[:12]}"
    session.dataSource.register(empty_source(name, schema or CHUNK_SCHEMA))
    result = transformed(session.read.format(name).load(), transform, name)
    return list(map(str, result.columns[len(schema or CHUNK_SCHEMA) :]))


def transformed(frame: DataFrame, transform: Transform, source: str) -> DataFrame:
    """The transform's result, checked before it runs: no document row moves between tasks, and
    columns were added at most, never dropped, renamed or retyped.
    """
    send(frame.sparkSession, transform)
    try:
        result = transform(frame)
    except BaseException as error:
        if is_stop(error):
            raise
        if isinstance(error, Exception) and isinstance(found := explained(error), InstepError):
            raise found from error
        raise UserError(f"the transform raised {in_a_line(error)}") from error
    if not hasattr(result, "schema") or not hasattr(result, "sparkSession"):
        raise UserError(f"the transform returned {type(result).__name__}, not a DataFrame")
    check_plan(sparkapi.explained(result), source)
    given = {each.name: each.dataType for each in frame.schema.fields}
    names = result.columns
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"the transform's result has two columns named {', '.join(twice)}")
    types = {each.name: each.dataType for each in result.schema.fields}
    missing = [name for name in given if name not in types]
    if missing:
        raise UserError(
            f"the transform dropped or renamed {', '.join(missing)}",
            hint="It may add columns and change values; the columns it is given have to stay.",
        )
    for name, kind in given.items():
        if types[name] != kind:
            raise UserError(
                f"the transform changed the type of {name} from {kind.simpleString()} to {types[name].simpleString()}",
                hint=f"Cast it back: .withColumn({name!r}, col({name!r}).cast({kind.simpleString()!r}))",
            )
    added = [name for name in names if name not in given]
    ordered: DataFrame = result.select(*given, *added)
    return ordered


def in_a_line(error: BaseException) -> str:
    """The first line of an error."""
    reason = (str(error).strip().splitlines() or [""])[0][:300]
    return f"{type(error).__name__}: {reason}"
