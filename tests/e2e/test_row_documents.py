"""Documents that are rows of a table: what a user does with them every day, and what can be wrong with rows."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import instep
from instep.domain.jobs import JobPart, JobState
from instep.domain.keys import Key
from instep.domain.rows import DocumentColumns
from instep.entities.plan_request import Kind
from instep.errors import UserError
from instep.jobs.live_refresh import LiveRefresh
from instep.sources.tables.parquet_rows import ParquetRows
from tests.sources.tables.sessions import session

from .tickets import LARGEST, Desk

SHOUT = """
from pyspark.sql import functions as F

def shout(rows):
    return rows.withColumn("text", F.upper("text"))

def sorts(rows):
    return rows.orderBy("chunk_index")
"""


def a_day_at(desk: Desk, *, transformed: bool = False) -> None:
    """Build, change in every way there is, mend."""
    desk.fill(60)
    built = desk.run()
    assert (built.state, built.counts.written) == (JobState.COMPLETED, 60)
    assert desk.wrong(transformed) == ""
    assert desk.run().plan.kind is Kind.NOTHING

    before = {each.id: each for each in desk.tickets}
    desk.change(3, body="Another text.")
    desk.change(4, subject="Another title alone")
    desk.change(5, gone=True)
    desk.remove(6)
    desk.change(7, id=700)
    desk.change(8, body=None)
    desk.change(9, body="x" * (LARGEST + 1))
    desk.change(10, subject=None)
    desk.tickets += [
        *desk.tickets[11:13],
        *desk.tickets[11:12],
        desk.tickets[20].__class__(None, "orphan"),
    ]
    twice = [each.id for each in (desk.tickets[-4], desk.tickets[-3])]
    desk.kept = {number: before[number] for number in (9, *twice) if number is not None}
    desk.save()
    changed = desk.run()
    assert desk.wrong(transformed) == ""
    assert desk.failures() == {
        "table://Ticket/9": f"too large: {LARGEST + 1:,} bytes; max_document_bytes is {LARGEST:,}",
        f"table://Ticket/{twice[0]}": "3 rows have this key (id)",
        f"table://Ticket/{twice[1]}": "2 rows have this key (id)",
        "table://Ticket/(null)": "1 row has a null in the key (id)",
    }
    counts = changed.counts
    assert (changed.state, counts.failed, counts.deleted) == (JobState.COMPLETED_WITH_ERRORS, 4, 3)
    assert (counts.read, counts.written, counts.skipped) == (12, 5, 0)
    assert desk.run().plan.kind is Kind.NOTHING  # What fails waits for a change.

    desk.tickets = desk.tickets[:-4]
    desk.change(9, body="Short again.")
    desk.kept = {}
    desk.save()
    assert desk.run().state is JobState.COMPLETED
    assert desk.failures() == {}
    assert desk.wrong(transformed) == ""


@pytest.mark.parametrize(("kind", "version"), [("parquet", True), ("parquet", False), ("clickhouse", False)])
def test_rows_are_followed_without_spark(tmp_path: Path, kind: str, version: bool) -> None:
    desk = Desk(tmp_path / "desk", kind, version=version, entity="depends_on: []")
    desk.declare()
    a_day_at(desk)

    desk.tickets = desk.tickets[:30]
    desk.save()
    with pytest.raises(UserError, match="documents are gone from the source"):
        desk.run()
    desk.run(allow_deletes=True)
    assert desk.wrong() == ""


@pytest.mark.proof
@pytest.mark.spark
def test_rows_of_a_database_are_followed_by_spark(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk", "postgres", version=False, spark=session())
    desk.declare()
    a_day_at(desk)


@pytest.fixture
def on_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is planned on Spark, its changes are cut there, and what is recorded is kept for that."""
    monkeypatch.setattr("instep.pipeline.engine.choice.SPARK_PLANS", 1)
    monkeypatch.setattr("instep.pipeline.documents.stored_changes.FEW", 0)
    monkeypatch.setattr("instep.pipeline.engine.corpus._ROWS", 10)
    monkeypatch.setattr("instep.document_state.corpus_parts._DOCUMENTS", 16)
    monkeypatch.setattr("instep.ledger.documents._BASE_ROWS", 1)
    monkeypatch.setattr("instep.ledger.plans._FILE_ROWS", 1)


@pytest.mark.proof
@pytest.mark.spark
@pytest.mark.usefixtures("on_spark")
@pytest.mark.parametrize("version", [True, False])
def test_rows_are_followed_with_plans_that_spark_makes(tmp_path: Path, version: bool) -> None:
    desk = Desk(tmp_path / "desk", "parquet", version=version, spark=session(), entity="depends_on: []")
    desk.declare()
    a_day_at(desk)
    desk.save()  # Of files that nobody wrote nothing is compared.
    same_plans(desk)

    desk.tickets = desk.tickets[:30]
    desk.save()
    same_plans(desk)
    with pytest.raises(UserError, match="documents are gone from the source"):
        desk.run()
    desk.run(allow_deletes=True)
    assert desk.wrong() == ""
    desk.change(8, body="Said again.")
    desk.save()
    for file in (desk.root / ".instep" / "ledger-documents").glob("*.arrow"):
        file.write_bytes(file.read_bytes()[:-1])
    same_plans(
        desk, "a file with the records of its documents is lost or damaged: all records were read from the ledger"
    )
    desk.run(full_refresh=True)
    assert desk.wrong() == ""
    gc.collect()  # A run that was refused may be in a cycle still.
    left = {each.name for each in (desk.root / ".instep").iterdir()}
    assert "planning" not in left
    assert not list((desk.root / ".instep").rglob("*.plan"))


@pytest.mark.proof
@pytest.mark.spark
@pytest.mark.usefixtures("on_spark")
@pytest.mark.parametrize("version", [True, False])
def test_tables_that_only_spark_reads_are_listed_in_tasks(
    tmp_path: Path, version: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path / "desk", "parquet", version=version, spark=session(), entity="depends_on: []")
    desk.declare()
    config = desk.root / "instep.yaml"
    config.write_text(config.read_text().replace("path: tickets", "path: tickets, sql: SELECT * FROM source"))
    desk.fill(40)
    desk.run()
    assert desk.wrong() == ""
    desk.change(7, body="Said again.")
    desk.remove(3, 9)
    desk.save()
    project = instep.load(desk.root).project
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("instep.sources.tables.spark_rows.SparkRows.listed", not_here)
        (there,) = instep.Instep(project, spark=desk.spark).plan(explain=True)
    monkeypatch.setattr("instep.pipeline.engine.choice.SPARK_PLANS", 1_000)
    (here,) = instep.Instep(project, spark=desk.spark).plan(explain=True)
    assert (there.compared or "").startswith("compared on Spark: about ")
    assert (there.documents, there.slices, there.work) == (here.documents, here.slices, here.work)
    assert sorted(map(str, there.changes or ())) == sorted(map(str, here.changes or ()))
    assert there.documents is not None
    assert there.documents["changed"] == 1
    assert there.documents["deleted"] == 2
    (compared_here,) = instep.Instep(project, spark=desk.spark).diff()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("instep.pipeline.engine.choice.SPARK_PLANS", 1)
        elsewhere.setattr("instep.sources.tables.spark_rows.SparkRows.listed", not_here)
        (compared_there,) = instep.Instep(project, spark=desk.spark).diff()
    assert compared_there.pending == compared_here.pending
    assert (compared_there.differs, compared_there.rows) == (compared_here.differs, compared_here.rows)
    desk.run()
    assert desk.wrong() == ""


def not_here(table: object, columns: object) -> None:
    raise AssertionError("listed in this process")


def same_plans(desk: Desk, *warnings: str) -> None:
    """What is planned on Spark is what this process plans."""
    project = instep.load(desk.root).project
    (there,) = instep.Instep(project, spark=desk.spark).plan(explain=True)
    (here,) = instep.Instep(project).plan(explain=True)
    assert there.compared is not None
    assert there.compared.startswith("compared on Spark: about ")
    assert here.compared is None
    assert (there.kind, there.documents, there.slices, there.work) == (
        here.kind,
        here.documents,
        here.slices,
        here.work,
    )
    assert (there.blocked, there.units) == (here.blocked, here.units)
    assert sorted(map(str, there.changes or ())) == sorted(map(str, here.changes or ()))
    assert there.warnings == warnings


@pytest.mark.spark
def test_rows_with_times_in_nanoseconds_are_alike_here_and_on_spark(tmp_path: Path) -> None:
    """As pandas writes them: a run that is large enough for Spark reads what a small one does."""
    desk = Desk(tmp_path / "desk", "parquet", unit="ns")
    desk.declare()
    desk.fill(20)
    assert desk.run(engine="inline").counts.written == 20
    desk.spark = session()
    assert desk.run(engine="spark").plan.kind is Kind.NOTHING
    desk.change(3, body="Another text.")
    desk.save()
    assert desk.run(engine="spark").counts.written == 1
    assert desk.wrong() == ""
    assert desk.run(engine="inline").plan.kind is Kind.NOTHING


@pytest.mark.spark
def test_spark_joins_changes_with_one_scan_and_moves_no_row(tmp_path: Path) -> None:
    spark = session()
    desk = Desk(tmp_path / "desk", "parquet", spark=spark, entity="transform: shouting:shout")
    desk.declare()
    (desk.root / "shouting.py").write_text(SHOUT)
    a_day_at(desk, transformed=True)

    sorting = Desk(tmp_path / "sorting", "parquet", spark=spark, entity="transform: sorting_rows:sorts")
    sorting.declare()
    (sorting.root / "sorting_rows.py").write_text(SHOUT)
    sorting.fill(3)
    with pytest.raises(UserError, match="moves document rows between tasks: sort"):
        sorting.run()

    plain = Desk(tmp_path / "plain", "parquet", spark=spark)
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


def listed_by(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The columns of keys by which rows of files are listed from now on, an entry for each look at all of them."""
    looks: list[str] = []
    listed = ParquetRows.listed

    def looking(self: ParquetRows, columns: DocumentColumns) -> Iterator[pa.RecordBatch]:
        looks.append(columns.text)
        return listed(self, columns)

    monkeypatch.setattr(ParquetRows, "listed", looking)
    return looks


def test_rows_of_files_that_nobody_wrote_are_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(tmp_path / "desk", "parquet", version=False, entity="depends_on: []")
    desk.declare()
    desk.fill(10)
    looks = listed_by(monkeypatch)
    desk.run()
    assert desk.run().plan.kind is Kind.NOTHING
    assert looks == ["body"]

    desk.save()  # The same rows once more.
    found = [desk.run() for _ in range(2)]
    assert [(each.plan.kind, each.unchanged) for each in found] == [(Kind.NOTHING, 10), (Kind.NOTHING, 10)]
    assert looks == ["body", "body"]

    desk.change(3, body="Another text.")
    desk.save()
    assert desk.run().counts.written == 1
    assert desk.run().plan.kind is Kind.NOTHING
    assert looks == ["body", "body", "body"]
    assert desk.wrong() == ""


def test_rows_are_listed_again_when_the_declaration_reads_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path / "desk", "parquet", version=True, entity="depends_on: []")
    desk.declare()
    desk.fill(10)
    desk.change(3, gone=True)
    desk.save()
    desk.run()
    looks = listed_by(monkeypatch)
    text = (desk.root / "instep.yaml").read_text()
    (desk.root / "instep.yaml").write_text(text.replace(", deleted: gone", ""))
    assert desk.run().counts.written == 1
    assert looks == ["body"]


def test_a_rebuild_of_files_that_nobody_writes_lists_them_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(tmp_path / "desk", "parquet", version=False, entity="depends_on: []")
    desk.declare()
    desk.fill(10)
    desk.run()
    looks = listed_by(monkeypatch)
    assert desk.run(full_refresh=True).counts.written == 10
    assert desk.run().plan.kind is Kind.NOTHING
    assert looks == ["body"]
    assert desk.wrong() == ""


def test_after_a_job_that_was_cancelled_rows_are_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of what it had seen is in the index, and the files may be again as they were before it."""
    desk = Desk(tmp_path / "desk", "parquet", version=False, entity="depends_on: []")
    desk.declare()
    desk.fill(10)
    desk.run()
    looks = listed_by(monkeypatch)
    monkeypatch.setattr("instep.entities.documents.versions.overtaken", lambda *_: True)
    assert desk.run().plan.kind is Kind.NOTHING
    assert looks == ["body"]


def test_a_row_that_was_gone_when_it_was_to_be_read_is_looked_for_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is back when the build looks what else has changed, and there is more: all of that is in the build but it."""
    desk = Desk(tmp_path / "desk", "parquet", version=False, entity="depends_on: []")
    desk.declare()
    desk.fill(10)
    desk.run()
    before, rows, catch_up = [*desk.tickets], ParquetRows.rows, LiveRefresh.catch_up

    def without_it(self: ParquetRows, columns: DocumentColumns, keys: Sequence[Key]) -> Iterator[pa.RecordBatch]:
        if 3 in {each.id for each in desk.tickets}:
            desk.remove(3)
            desk.save()
        return rows(self, columns, keys)

    def with_it_and_another_change(self: LiveRefresh, part: JobPart) -> int:
        monkeypatch.undo()
        desk.tickets = before
        desk.change(4, body="Another text.")
        desk.save()
        return catch_up(self, part)

    monkeypatch.setattr(ParquetRows, "rows", without_it)
    monkeypatch.setattr(LiveRefresh, "catch_up", with_it_and_another_change)
    assert desk.run(full_refresh=True).counts.skipped == 1
    desk.run()
    assert desk.wrong() == ""
