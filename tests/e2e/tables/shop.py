"""A small application: people, tickets in namespaces and who likes which, as Parquet that changes; and the truth about
the graph that is to be made of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

import instep
from instep.container import Container
from instep.domain.clock import Timing
from instep.domain.refs import PartitionRef
from instep.entities.plan_request import PlanOptions
from instep.entities.setup import EntitySetup
from instep.entities.tables.setup import TableSetup
from instep.jobs.entity_result import EntityResult
from instep.jobs.run import run_entities
from instep.planning.context import Context
from instep.telemetry.progress import Silent
from tests.doubles.clock import VirtualClock
from tests.sources.tables.sessions import session

#: The first of these is what both namespaces' rows begin with; the others are inside.
NAMESPACES = ("1/2/", "1/3/")

#: Looks seldom, so that waiting for a silent worker takes few calls.
TIMING = Timing(poll=30_000)

PROJECT = """
name: shop
namespaces: [1/2, 1/3]
targets:
  index: {{{target}}}
entities:
  Person:
    source: {{type: spark, path: people}}
    key: id
    watermark: at
    deleted: gone
    node: {{label: Person, properties: [id, name]}}
  Ticket:
    source: {{type: spark, path: tickets}}
    key: id
    scope: path
    watermark: at
    deleted: gone
    slices: 3
    node: {{label: Ticket, properties: [id, title]}}
    edges:
      - {{kind: OPENED, from: {{label: Person, columns: [author]}}, to: {{label: Ticket}}}}
  Like:
    source: {{type: spark, path: likes}}
    key: [person, ticket]
    watermark: at
    deleted: gone
    edges:
      - {{kind: LIKES, from: {{label: Person, columns: [person]}}, to: {{label: Ticket, columns: [ticket]}}}}
"""

_SCHEMAS: dict[str, dict[str, pa.DataType]] = {
    "people": {"id": pa.int64(), "name": pa.string()},
    "tickets": {"id": pa.int64(), "path": pa.string(), "title": pa.string(), "author": pa.int64()},
    "likes": {"person": pa.int64(), "ticket": pa.int64()},
}
_COMMON: dict[str, pa.DataType] = {"gone": pa.bool_(), "at": pa.timestamp("us", "UTC")}


class Row(NamedTuple):
    values: Mapping[str, Any]
    at: datetime | None
    gone: bool


@dataclass
class Shop:
    """`rows` are the tables as the application has them, by table and key; `types` those of their columns (of one that
    is not named: text).
    """

    root: Path
    target: str
    clock: VirtualClock = field(default_factory=VirtualClock)
    rows: dict[str, dict[tuple[Any, ...], Row]] = field(default_factory=lambda: {name: {} for name in _SCHEMAS})
    types: dict[str, dict[str, pa.DataType]] = field(
        default_factory=lambda: {name: dict(types) for name, types in _SCHEMAS.items()}
    )

    # The application.

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=self.clock.now())

    def copied(self, root: Path) -> Self:
        """The same elsewhere, with all that is indexed; nothing is at work in it."""
        shutil.copytree(self.root, root)
        return replace(deepcopy(self), root=root)

    def put(self, table: str, *, gone: bool = False, at: datetime | None = None, **values: Any) -> None:
        """Insert or change a row, or delete it as the application does: by its flag."""
        key = tuple(values[name] for name in (("person", "ticket") if table == "likes" else ("id",)))
        before = self.rows[table].get(key)
        self.rows[table][key] = Row({**(before.values if before else {}), **values}, at or self.now, gone)

    def remove(self, table: str, *key: Any) -> None:
        """Delete a row for good: nothing in the source says that it was there."""
        del self.rows[table][key]

    def fill(self, *, people: int = 20, tickets: int = 300) -> None:
        for number in range(people):
            self.put("people", id=number, name=f"person {number}", gone=number == 7)
        for number in range(tickets):
            path = f"{NAMESPACES[number % 2]}{number % 5}/"
            author = None if number % 11 == 0 else number % people
            self.put("tickets", id=number, path=path, title=f"ticket {number}", author=author, gone=number % 13 == 0)
            if number % 3 == 0:
                self.put("likes", person=number % people, ticket=number)
        self.save()

    def save(self, *, files: int = 2) -> None:
        """The tables as Parquet, in place of what was there; a moment passes."""
        for name, rows in self.rows.items():
            folder = self.root / name
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            found = list(rows.values())
            for number in range(files):
                pq.write_table(_table(self.types[name], found[number::files]), folder / f"{number}.parquet")
        self.clock.sleep(60)

    # Instep.

    def declare(self, text: str = PROJECT, **changes: str) -> None:
        """Write the project; `changes` replace texts in it."""
        self.root.mkdir(parents=True, exist_ok=True)
        declared = text.format(target=self.target)
        for old, new in changes.items():
            assert old in declared
            declared = declared.replace(old, new)
        (self.root / "instep.yaml").write_text(declared)

    def edit(self, old: str, new: str) -> None:
        path = self.root / "instep.yaml"
        declared = path.read_text()
        assert old in declared
        path.write_text(declared.replace(old, new))

    def container(self) -> Container:
        return Container(instep.load(self.root).project, spark=session(), clock=self.clock, timing=TIMING)

    def run(
        self,
        *names: str,
        setups: Any = None,
        around: Any = None,
        **options: Any,
    ) -> dict[str, EntityResult]:
        """Results by partition. `setups` and `around` (of the context) may put something in between."""
        container = self.container()
        with closing(container), closing(container.ledger()) as ledger:
            found: Sequence[EntitySetup] = container.setups(names)
            upstream: Sequence[EntitySetup] = container.upstream(names)
            context: Context = replace(container.context(ledger, Silent()), background=self.clock)
            if setups is not None:
                found, upstream = [setups(each) for each in found], [setups(each) for each in upstream]
            if around is not None:
                context = around(context)
            wait = TIMING.lease / 1000 + 1
            results = run_entities(found, context, PlanOptions(**options), wait_seconds=wait, upstream=upstream)
        self.clock.sleep(60)
        return {each.plan.ref.label: each for each in results}

    def setup(self, name: str) -> TableSetup:
        found = self.container().setups([name])[0]
        assert isinstance(found, TableSetup)
        return found

    def stored(self, name: str, kind: str = "") -> list[dict[str, Any]]:
        """What a reader finds, without Instep's own columns."""
        setup = self.setup(name)
        served = setup.target.served(setup.alias)
        if served is None:
            return []
        found = setup.target.read(served, kind).to_pylist()
        return [{key: value for key, value in row.items() if not key.startswith("_")} for row in found]

    def origins(self, name: str) -> dict[str, set[str]]:
        """The instances that wrote the rows of each partition."""
        setup = self.setup(name)
        served = setup.target.served(setup.alias)
        assert served is not None
        found: dict[str, set[str]] = {}
        for row in setup.target.read(served, "").to_pylist():
            found.setdefault(row["_ref"], set()).add(row["_instance"])
        return found

    def checkpoint(self, ref: str) -> int | None:
        """Up to when (ms) a partition is complete."""
        with closing(self.container().ledger()) as ledger:
            found = ledger.checkpoints.get(PartitionRef.parse(ref))
        return found.watermark if found else None

    # The truth.

    def alive(self, table: str) -> list[Mapping[str, Any]]:
        return [row.values for row in self.rows[table].values() if not row.gone]

    def expected(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        people, tickets, likes = (self.alive(name) for name in ("people", "tickets", "likes"))
        return {
            ("Person", ""): [dict(row) for row in people],
            ("Ticket", ""): [{name: row[name] for name in ("id", "path", "title")} for row in tickets],
            ("Ticket", "OPENED"): [
                {"id": row["id"], "path": row["path"], "from_id": row["author"], "to_id": row["id"]}
                for row in tickets
                if row["author"] is not None
            ],
            ("Like", ""): [dict(row) for row in likes],
            ("Like", "LIKES"): [{**row, "from_id": row["person"], "to_id": row["ticket"]} for row in likes],
        }

    def wrong(self, *names: str) -> dict[str, Any]:
        """What differs between the tables and the truth, of some entities or all; empty when nothing does."""
        found = {}
        for (name, kind), rows in self.expected().items():
            if names and name not in names:
                continue
            want, have = _bag(rows), _bag(self.stored(name, kind))
            if want != have:
                missing = [row for row in want if row not in have]
                extra = [row for row in have if row not in want]
                found[f"{name}/{kind}"] = {"missing": missing[:5], "extra": extra[:5], "rows": (len(want), len(have))}
        return found


def _bag(rows: Iterable[Mapping[str, Any]]) -> list[tuple[tuple[str, Any], ...]]:
    return sorted((tuple(sorted(row.items())) for row in rows), key=repr)


def _table(types: Mapping[str, pa.DataType], rows: Sequence[Row]) -> pa.Table:
    types = {**types, **_COMMON}
    made = [{**row.values, "gone": row.gone, "at": row.at} for row in rows]
    extra = {key for row in made for key in row} - types.keys()
    schema = pa.schema([*types.items(), *((each, pa.string()) for each in sorted(extra))])
    return pa.Table.from_pylist(made, schema=schema)
