"""Documents that are rows of a table: what a user does with them every day, and what can be wrong with rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.domain.jobs import JobState
from instep.entities.plan_request import Kind
from instep.errors import UserError
from tests.sources.tables.sessions import session

from .tickets import LARGEST, PartContext

SHOUT = """
from pyspark.sql import functions as F

def shout(rows):
    return rows.withColumn("text", F.upper("text"))

def sorts(rows):
    return rows.orderBy("chunk_index")
"""


def a_day_at(part_context: PartContext, *, transformed: bool = False) -> None:
    """Build, change in every way there is, mend."""
    part_context.fill(60)
    built = part_context.run()
    assert (built.state, built.counts.written) == (JobState.COMPLETED, 60)
    assert part_context.wrong(transformed) == ""
    assert part_context.run().plan.kind is Kind.NOTHING

    before = {each.id: each for each in part_context.tickets}
    part_context.change(3, body="Another text.")
    part_context.change(4, subject="Another title alone")
    part_context.change(5, gone=True)
    part_context.remove(6)
    part_context.change(7, id=700)
    part_context.change(8, body=None)
    part_context.change(9, body="x" * (LARGEST + 1))
    part_context.change(10, subject=None)
    part_context.tickets += [
        *part_context.tickets[11:13],
        *part_context.tickets[11:12],
        part_context.tickets[20].__class__(None, "nobody's"),
    ]
    twice = [each.id for each in (part_context.tickets[-4], part_context.tickets[-3])]
    part_context.kept = {number: before[number] for number in (9, *twice) if number is not None}
    part_context.save()
    changed = part_context.run()
    assert part_context.wrong(transformed) == ""
    assert part_context.failures() == {
        "table://Ticket/9": f"too large: {LARGEST + 1:,} bytes; max_document_bytes is {LARGEST:,}",
        f"table://Ticket/{twice[0]}": "3 rows have this key (id)",
        f"table://Ticket/{twice[1]}": "2 rows have this key (id)",
        "table://Ticket/(null)": "1 row has a null in the key (id)",
    }
    counts = changed.counts
    assert (changed.state, counts.failed, counts.deleted) == (JobState.COMPLETED_WITH_ERRORS, 4, 3)
    assert (counts.read, counts.written, counts.skipped) == (12, 5, 0)
    assert part_context.run().plan.kind is Kind.NOTHING  # What fails waits for a change.

    part_context.tickets = part_context.tickets[:-4]
    part_context.change(9, body="Short again.")
    part_context.kept = {}
    part_context.save()
    assert part_context.run().state is JobState.COMPLETED
    assert part_context.failures() == {}
    assert part_context.wrong(transformed) == ""


@pytest.mark.parametrize(("kind", "version"), [("parquet", True), ("parquet", False), ("clickhouse", False)])
def test_rows_are_followed_without_spark(tmp_path: Path, kind: str, version: bool) -> None:
    part_context = PartContext(tmp_path / "desk", kind, version=version, entity="depends_on: []")
    part_context.declare()
    a_day_at(part_context)

    part_context.tickets = part_context.tickets[:30]
    part_context.save()
    with pytest.raises(UserError, match="documents are gone from the source"):
        part_context.run()
    part_context.run(allow_deletes=True)
    assert part_context.wrong() == ""


@pytest.mark.spark
def test_rows_of_a_database_are_followed_by_spark(tmp_path: Path) -> None:
    part_context = PartContext(tmp_path / "desk", "postgres", version=False, spark=session())
    part_context.declare()
    a_day_at(part_context)


@pytest.mark.spark
def test_rows_with_times_in_nanoseconds_are_alike_here_and_on_spark(tmp_path: Path) -> None:
    """As pandas writes them: a run that is large enough for Spark reads what a small one does."""
    part_context = PartContext(tmp_path / "desk", "parquet", unit="ns")
    part_context.declare()
    part_context.fill(20)
    assert part_context.run(engine="inline").counts.written == 20
    part_context.spark = session()
    assert part_context.run(engine="spark").plan.kind is Kind.NOTHING
    part_context.change(3, body="Another text.")
    part_context.save()
    assert part_context.run(engine="spark").counts.written == 1
    assert part_context.wrong() == ""
    assert part_context.run(engine="inline").plan.kind is Kind.NOTHING


@pytest.mark.spark
def test_spark_joins_changes_with_one_scan_and_moves_no_row(tmp_path: Path) -> None:
    spark = session()
    part_context = PartContext(tmp_path / "desk", "parquet", spark=spark, entity="transform: shouting:shout")
    part_context.declare()
    (part_context.root / "shouting.py").write_text(SHOUT)
    a_day_at(part_context, transformed=True)

    sorting = PartContext(tmp_path / "sorting", "parquet", spark=spark, entity="transform: sorting_rows:sorts")
    sorting.declare()
    (sorting.root / "sorting_rows.py").write_text(SHOUT)
    sorting.fill(3)
    with pytest.raises(UserError, match="moves document rows between tasks: sort"):
        sorting.run()

    plain = PartContext(tmp_path / "plain", "parquet", spark=spark)
    plain.declare()
    plain.fill(3)
    spark.conf.set("spark.sql.optimizer.disableHints", "true")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        with pytest.raises(UserError, match="would move the rows of the table between tasks"):
            plain.run()
    finally:
        spark.conf.unset("spark.sql.optimizer.disableHints")
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
