"""Tickets in a table, whose rows are documents; and the truth about the index, made without Instep."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import lance
import pyarrow as pa
import pyarrow.parquet as pq
from semantic_text_splitter import TextSplitter

import instep
from instep.jobs.entity_result import EntityResult
from tests.servers.jars import jar
from tests.servers.postgres import running_postgres
from tests.sources.tables import clickhouse_tables, databases

from .truth import served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "body": pa.string(),
    "subject": pa.string(),
    "at": pa.timestamp("us", "UTC"),
    "gone": pa.bool_(),
}
SCHEMA = pa.schema(_COLUMNS)
LARGEST = 4_000

_BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Ticket:
    id: int | None
    body: str | None
    subject: str | None = None
    gone: bool = False
    at: datetime = _BEGINNING


@dataclass
class Desk:
    """`kind` is where the tickets are kept: `parquet`, `clickhouse` or `postgres`. With `version` their time tells that
    they have changed, else their content does. `unit` is that of this time in Parquet.
    """

    root: Path
    kind: str
    version: bool = True
    entity: str = ""
    spark: SparkSession | None = None
    unit: Literal["us", "ns"] = "us"
    tickets: list[Ticket] = field(default_factory=list)
    #: Of those that fail what is indexed of them stays.
    kept: dict[int, Ticket] = field(default_factory=dict)
    _table: str = field(default_factory=lambda: f"tickets_{uuid.uuid4().hex[:8]}")

    def declare(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        version = ", version: at" if self.version else ""
        (self.root / "instep.yaml").write_text(f"""
name: desk
targets: {{index: {{type: lance, uri: index}}}}
entities:
  Ticket:
    source: {self._source()}
    document: {{key: id, text: body, title: subject, deleted: gone{version}}}
    limits: {{max_document_bytes: {LARGEST}}}
    deletes: {{floor: 20}}
    buckets: 4
    {self.entity}
""")

    def _source(self) -> str:
        if self.kind == "postgres":
            jar("postgresql").needed()
            options = databases.options(running_postgres())
            return json.dumps({"type": "spark", "format": "jdbc", "table": self._table, "options": options})
        if self.kind == "clickhouse":
            return f"{{type: clickhouse, uri: chdb, table: {self._table}}}"
        return "{type: spark, path: tickets}"

    def fill(self, count: int) -> None:
        self.tickets = [
            Ticket(number, f"Ticket {number} is about a lamp.\n\n" * (1 + number % 60), f"Lamp {number}")
            for number in range(count)
        ]
        self.save()

    def change(self, number: int, **values: object) -> None:
        """A row, and the time of its change."""
        (at,) = (place for place, each in enumerate(self.tickets) if each.id == number)
        later = self.tickets[at].at + timedelta(seconds=1)
        self.tickets[at] = replace(self.tickets[at], **{"at": later, **values})  # type: ignore[arg-type]  # by name

    def remove(self, *numbers: int | None) -> None:
        self.tickets = [each for each in self.tickets if each.id not in numbers]

    def save(self) -> None:
        rows = pa.Table.from_pylist([vars(each) for each in self.tickets], SCHEMA)
        if self.kind == "postgres":
            databases.put(running_postgres(), self._table, rows)
        elif self.kind == "clickhouse":
            (self.root / "chdb").mkdir(parents=True, exist_ok=True)
            clickhouse_tables.made(str(self.root / "chdb"), rows, table=self._table, order="id")
        else:
            at = rows["at"].cast(pa.timestamp(self.unit, "UTC"))
            rows = rows.set_column(rows.schema.get_field_index("at"), "at", at)
            (self.root / "tickets").mkdir(parents=True, exist_ok=True)
            half = rows.num_rows // 2
            for name, part in (("one", rows[:half]), ("two", rows[half:])):
                pq.write_table(part, self.root / "tickets" / f"{name}.parquet", row_group_size=10)

    def run(self, **options: object) -> EntityResult:
        project = instep.load(self.root).project
        (result,) = instep.Instep(project, spark=self.spark).run(**options)  # type: ignore[arg-type]  # passed through
        return result

    def failures(self) -> dict[str, str]:
        return {each.uri: each.reason for each in instep.load(self.root).failures()}

    def wrong(self, transformed: bool = False) -> str:
        """What differs between the index and the truth; empty when nothing does."""
        want, have = Counter(_rows([*self._good(), *self.kept.values()])), Counter(self._stored())
        if transformed:
            want = Counter((identity, title, text.upper()) for identity, title, text in want.elements())
        lost, extra = list((want - have).elements()), list((have - want).elements())
        return f"missing {lost[:3]}, too many {extra[:3]}" if lost or extra else ""

    def _good(self) -> Iterable[Ticket]:
        counts = Counter(each.id for each in self.tickets if not each.gone)
        for each in self.tickets:
            readable = each.id is not None and counts[each.id] == 1 and len((each.body or "").encode()) <= LARGEST
            if readable and not each.gone:
                yield each

    def _stored(self) -> list[tuple[str, str, str]]:
        table = lance.dataset(served(self.root / "index", "Ticket")).to_table(columns=["document_id", "title", "text"])
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _rows(tickets: Iterable[Ticket]) -> Iterable[tuple[str, str, str]]:
    for each in tickets:
        identity = "doc_" + hashlib.sha256(f"table://ticket/{each.id}".encode()).hexdigest()
        for chunk in TextSplitter(800).chunks(each.body or ""):
            yield identity, each.subject or str(each.id), chunk
