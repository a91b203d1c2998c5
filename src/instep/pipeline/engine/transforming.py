"""Rules for a user's transform of document rows, checked before anything runs."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from instep.error_transport import explained
from instep.errors import InstepError, UserError
from instep.own_code import send
from instep.pipeline.engine import sparkapi
from instep.pipeline.engine.plancheck import check_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Transform: TypeAlias = Callable[[Any], Any]


def rehearsed(session: SparkSession, transform: Transform) -> list[str]:
    """Names of the columns that a transform adds, tried on no documents at all. Raises `UserError` for one that no wave
    could run.
    """
    from instep.pipeline.documents.rows import CHUNK_SCHEMA
    from instep.pipeline.engine.datasource import empty_source

    name = f"instep_{uuid.uuid4().hex[:12]}"
    session.dataSource.register(empty_source(name))
    result = transformed(session.read.format(name).load(), transform, name)
    return list(map(str, result.columns[len(CHUNK_SCHEMA) :]))


def transformed(frame: DataFrame, transform: Transform, source: str) -> DataFrame:
    """The transform's result, checked before it runs: no document row moves between tasks, and
    columns were added at most, never dropped, renamed or retyped.
    """
    send(frame.sparkSession, transform)
    try:
        result = transform(frame)
    except (Exception, SystemExit) as error:
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
    """What an error says, by its first line."""
    reason = (str(error).strip().splitlines() or [""])[0][:300]
    return f"{type(error).__name__}: {reason}"
