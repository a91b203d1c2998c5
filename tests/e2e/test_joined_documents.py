"""Documents of several tables: tickets with their comments, and the truth about them, made without Instep."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import instep
from instep.domain.jobs import JobState
from instep.entities.plan_request import Kind
from instep.errors import UserError
from instep.jobs.entity_result import EntityResult
from tests.sources.tables import clickhouse_tables
from tests.sources.tables.sessions import session

from .truth import served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
TICKETS = pa.schema(
    dict[str, pa.DataType](space=pa.string(), id=pa.int64(), body=pa.string(), subject=pa.string(), at=pa.int64())
)
COMMENTS = pa.schema(
    dict[str, pa.DataType](
        space=pa.string(),
        ticket=pa.int64(),
        said=pa.string(),
        at=pa.timestamp("us", "UTC"),
        revision=pa.int64(),
        gone=pa.bool_(),
    )
)


@dataclass(frozen=True)
class Ticket:
    id: int | None
    body: str | None
    space: str = "a"
    subject: str = "Lamp"
    at: int = 1


@dataclass(frozen=True)
class Comment:
    ticket: int | None
    said: str | None
    minute: int | None = 0
    space: str | None = "a"
    revision: int = 1
    gone: bool | None = False

    @property
    def at(self) -> datetime | None:
        return None if self.minute is None else NOON + timedelta(minutes=self.minute)


@dataclass
class Desk:
    """`kind` is where the tables are kept: `parquet`, or `clickhouse`. `version` says whether they have versions."""

    root: Path
    kind: str = "parquet"
    version: bool = True
    entity: str = ""
    sql: bool = False
    spark: SparkSession | None = None
    tickets: list[Ticket] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    comment_schema: pa.Schema = COMMENTS

    def declare(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        own, theirs = (", version: at", ", version: revision") if self.version else ("", "")
        (self.root / "instep.yaml").write_text(f"""
name: desk
targets: {{index: {{type: lance, uri: index}}}}
entities:
  Ticket:
    source: {self._source("tickets")}
    document:
      key: [space, id]
      text: body
      title: subject{own.replace(", ", chr(10) + "      ")}
      with:
        comments:
          {{source: {self._source("comments")}, key: [space, ticket], text: said, order: at,
            heading: "Comments:", deleted: gone{theirs}}}
    limits: {{max_document_bytes: 600}}
    chunk: {{size: 2000}}
    deletes: {{floor: 20}}
    buckets: 4
    {self.entity}
""")

    def _source(self, table: str) -> str:
        if self.kind == "clickhouse":
            return f"{{type: clickhouse, uri: chdb, table: {table}}}"
        return f"{{type: spark, path: {table}{', sql: SELECT * FROM source' if self.sql else ''}}}"

    def fill(self, count: int) -> None:
        self.tickets = [Ticket(number, f"Ticket {number}.") for number in range(count)]
        self.comments = [
            Comment(number, f"Said {minute} of {number}.", minute) for minute in (2, 0, 1) for number in range(2, count)
        ]
        self.save()

    def save(self) -> None:
        tickets = pa.Table.from_pylist([vars(each) for each in self.tickets], TICKETS)
        rows = [{**vars(each), "at": each.at} for each in self.comments]
        comments = pa.Table.from_pylist(rows, COMMENTS).cast(self.comment_schema)
        for name, rows_of, order in (("tickets", tickets, "id"), ("comments", comments, "revision")):
            if self.kind == "clickhouse":
                (self.root / "chdb").mkdir(parents=True, exist_ok=True)
                clickhouse_tables.made(str(self.root / "chdb"), rows_of, table=name, order=order)
            else:
                (self.root / name).mkdir(parents=True, exist_ok=True)
                half = rows_of.num_rows // 2
                for file, part in (("one", rows_of[:half]), ("two", rows_of[half:])):
                    pq.write_table(
                        part, self.root / name / f"{file}.parquet", row_group_size=max(10, rows_of.num_rows // 20)
                    )

    def change(self, at: int, **values: Any) -> None:
        """A comment, and its revision."""
        self.comments[at] = replace(self.comments[at], **{"revision": self.comments[at].revision + 1, **values})

    def run(self, **options: Any) -> EntityResult:
        (result,) = instep.Instep(instep.load(self.root).project, spark=self.spark).run(**options)
        return result

    def plan(self) -> Any:
        (found,) = instep.Instep(instep.load(self.root).project, spark=self.spark).plan(explain=True)
        return found

    def changed(self, **options: Any) -> set[str]:
        """The keys of documents that a run indexes, which are all that it reads."""
        planned = {each.uri.removeprefix("table://Ticket/") for each in self.plan().changes or ()}
        counts = self.run(**options).counts
        assert counts.read == len(planned)
        return planned

    def failures(self) -> dict[str, str]:
        return {each.uri: each.reason for each in instep.load(self.root).failures()}

    def stored(self) -> dict[str, str]:
        columns = lance.dataset(served(self.root / "index", "Ticket")).to_table(columns=["source_uri", "text"])
        uris, texts = (column.to_pylist() for column in columns.columns)
        assert len(set(uris)) == len(uris), "each document is one chunk here"
        return dict(zip(uris, texts, strict=True))

    def versions(self) -> dict[str, str]:
        columns = lance.dataset(served(self.root / "index", "Ticket")).to_table(
            columns=["source_uri", "source_version"]
        )
        return dict(zip(*(column.to_pylist() for column in columns.columns), strict=True))

    def wanted(self) -> dict[str, str]:
        return {
            f"table://Ticket/{quote(each.space)}/{each.id}": text
            for each in self.tickets
            if (text := self._text_of(each))
        }

    def _text_of(self, ticket: Ticket) -> str:
        mine = [
            each
            for each in self.comments
            if (each.space, each.ticket) == (ticket.space, ticket.id) and not each.gone and each.said
        ]
        mine.sort(key=lambda each: (each.minute is None, each.minute or 0, str(each.revision)))
        said = ["Comments:", *(each.said or "" for each in mine)] if mine else []
        return "\n\n".join(filter(None, [ticket.body, *said]))


def a_day_at(desk: Desk) -> None:
    """Build; add, change, delete and move comments; lose a ticket and rows without a ticket."""
    desk.fill(24)
    built = desk.run()
    assert (built.state, built.counts.written) == (JobState.COMPLETED, 24)
    assert desk.stored() == desk.wanted()
    assert desk.run().plan.kind is Kind.NOTHING

    desk.comments.append(Comment(0, "The first one."))
    desk.save()
    assert desk.changed() == {"a/0"}
    desk.change(3, said="Said otherwise.")
    desk.save()
    assert desk.changed() == {"a/5"}
    desk.change(4, ticket=1)
    desk.save()
    assert desk.changed() == {"a/6", "a/1"}
    desk.change(5, gone=True)
    del desk.comments[6]
    desk.save()
    assert desk.changed() == {"a/7", "a/8"}
    desk.change(6, minute=7)
    desk.save()
    assert desk.changed() == {"a/9"}
    assert desk.stored() == desk.wanted()

    desk.tickets = [each for each in desk.tickets if each.id != 20]
    desk.comments += [Comment(99, "of none"), Comment(None, "of a null"), Comment(3, None, space=None)]
    desk.save()
    plan = desk.plan()
    assert plan.warnings == (
        "6 rows of `document.with` are part of a document that is not there, or is deleted: nothing of them is indexed",
    )
    assert desk.changed() == {"a/20"}
    assert desk.stored() == desk.wanted()

    twice = next(each for each in desk.comments if each.ticket == 11)
    desk.comments += [twice, Comment(12, "later, or never", None), Comment(13, "of another space", space="b c")]
    desk.tickets.append(Ticket(13, None, space="b c"))
    desk.save()
    assert desk.changed() == {"a/11", "a/12", "b%20c/13"}
    assert desk.stored() == desk.wanted()
    assert desk.run().plan.kind is Kind.NOTHING
    assert desk.failures() == {}


@pytest.mark.parametrize(
    ("kind", "version"), [("parquet", True), ("parquet", False), ("clickhouse", True), ("clickhouse", False)]
)
def test_a_change_of_a_row_rebuilds_its_document_alone(tmp_path: Path, kind: str, version: bool) -> None:
    desk = Desk(tmp_path / "desk", kind, version=version)
    desk.declare()
    a_day_at(desk)


def test_a_document_with_very_many_rows_fails_and_is_mended(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk")
    desk.declare()
    desk.fill(4)
    desk.comments += [Comment(1, "A word.", minute % 60) for minute in range(100_000)]
    desk.save()
    built = desk.run()
    assert (built.state, built.counts.written, built.counts.failed) == (JobState.COMPLETED_WITH_ERRORS, 3, 1)
    ((uri, reason),) = desk.failures().items()
    assert uri == "table://Ticket/a/1"
    assert reason.startswith("too large: 900,0")
    assert reason.endswith(" bytes; max_document_bytes is 600")
    assert desk.run().plan.kind is Kind.NOTHING
    del desk.comments[-100_000:]
    desk.save()
    assert desk.changed() == {"a/1"}
    assert desk.stored() == desk.wanted()


def test_keys_of_other_types_are_refused(tmp_path: Path) -> None:
    text = COMMENTS.set(COMMENTS.get_field_index("ticket"), pa.field("ticket", pa.string()))
    desk = Desk(tmp_path / "desk", comment_schema=text)
    desk.declare()
    desk.fill(3)
    with pytest.raises(UserError, match="'ticket' is string, and 'id' of the documents, which it names, is int64"):
        desk.run()


def test_short_whole_numbers_name_long_ones(tmp_path: Path) -> None:
    short = COMMENTS.set(COMMENTS.get_field_index("ticket"), pa.field("ticket", pa.int32()))
    desk = Desk(tmp_path / "desk", comment_schema=short)
    desk.declare()
    desk.fill(3)
    desk.run()
    assert desk.stored() == desk.wanted()


def test_null_and_repeated_keys_of_documents_fail_whatever_rows_they_have(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk")
    desk.declare()
    desk.fill(4)
    desk.tickets += [Ticket(3, "again"), Ticket(None, "of none")]
    desk.comments.append(Comment(None, "of none"))
    desk.save()
    desk.run()
    assert desk.failures() == {
        "table://Ticket/a/3": "2 rows have this key (space, id)",
        "table://Ticket/a/(null)": "1 row has a null in the key (space, id)",
    }


def test_diff_sees_a_row_that_changed_and_repair_mends_what_the_index_lost(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk")
    desk.declare()
    desk.fill(6)
    desk.run()
    (found,) = instep.load(desk.root).diff()
    assert found.pending is not None
    assert (found.differs, found.pending["changed"]) == (False, 0)

    folder = served(desk.root / "index", "Ticket")
    lance.dataset(folder).delete("source_uri = 'table://Ticket/a/3'")
    desk.change(2, said="Behind our back.")
    desk.save()
    (found,) = instep.load(desk.root).diff()
    assert found.pending is not None
    assert found.found is not None
    assert (found.differs, found.found["missing"].documents, found.pending["changed"]) == (True, 1, 1)
    instep.load(desk.root).repair()
    assert "table://Ticket/a/3" in desk.stored()
    assert desk.stored() != desk.wanted()
    assert desk.changed() == {"a/4"}
    assert desk.stored() == desk.wanted()


@pytest.mark.proof
@pytest.mark.spark
@pytest.mark.parametrize("sql", [False, True])
@pytest.mark.parametrize("version", [True, False])
def test_spark_makes_the_same_documents(
    tmp_path: Path, version: bool, sql: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned in tasks, too."""
    here = Desk(tmp_path / "here", version=version)
    there = Desk(tmp_path / "there", version=version, sql=sql, spark=session(), entity="depends_on: []")
    monkeypatch.setattr("instep.pipeline.engine.corpus._ROWS", 10)
    monkeypatch.setattr("instep.document_state.corpus_parts._DOCUMENTS", 16)
    for desk in (here, there):
        desk.declare()
        desk.fill(24)
        desk.comments += [Comment(7, text, None, revision=3) for text in ("tied b", "tied a")]
        desk.save()
    here.run(engine="inline")
    monkeypatch.setattr("instep.pipeline.engine.choice.SPARK_PLANS", 1)
    assert (there.plan().compared or "").startswith("compared on Spark: about ")
    assert there.run(engine="spark").counts.written == 24
    assert there.stored() == here.stored()
    assert there.versions() == here.versions()
    a_day = Desk(tmp_path / "day", version=version, sql=sql, spark=session(), entity="depends_on: []")
    a_day.declare()
    a_day_at(a_day)


@pytest.mark.spark
def test_a_transform_gets_the_chunks_of_joined_documents(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk", spark=session(), entity="transform: shouted:shout")
    desk.declare()
    (desk.root / "shouted.py").write_text(
        "from pyspark.sql import functions as F\n\ndef shout(rows):\n"
        '    return rows.withColumn("text", F.upper("text"))\n'
    )
    desk.fill(8)
    desk.run()
    assert desk.stored() == {uri: text.upper() for uri, text in desk.wanted().items()}


#: Dies when it commits its second wave.
KILLED = """
import os, signal
import instep
import instep.entities.setup as setup
from instep.targets.lance import LanceTarget

setup.MOST_CLAIMS = 2
waves, commit = 0, LanceTarget.commit

def dies(*args, **kwargs):
    global waves
    waves += 1
    if waves == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return commit(*args, **kwargs)

LanceTarget.commit = dies
instep.load(".").run()
"""


def test_a_run_that_is_killed_between_waves_is_finished_by_the_next_one(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk")
    desk.declare()
    desk.fill(24)
    killed = subprocess.run([sys.executable, "-c", KILLED], cwd=desk.root, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    desk.run()
    assert desk.stored() == desk.wanted()
    assert desk.run().plan.kind is Kind.NOTHING
