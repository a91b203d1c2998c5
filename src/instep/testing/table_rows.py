"""Shared by the parts of the contract of targets for tables: tables, rows, and how they get into an index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
import pytest

from instep.domain.columns import (
    BOOL,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    STRING,
    TIMESTAMP,
    Column,
    decimal_type,
)
from instep.domain.waves import Mark
from instep.targets.table_target import OWN, Moved, TableChange, TableSpec, TableTarget, arrow_schema, spec_of

#: A namespace's rows, by a key of which the namespace is no part.
NODES = TableSpec(OWN, (Column("id", INT64), Column("path", STRING), Column("title", STRING)), ("id",), "path")
EDGES = TableSpec(
    "AUTHOR", (Column("path", STRING), Column("id", INT64), Column("user", INT64)), ("path", "id"), "path"
)
SPECS = (NODES, EDGES)

#: Every type, in a table whose names are as odd as a source's can be.
ODD = TableSpec(
    OWN,
    (
        Column("select", STRING),
        Column("a b\"c'd\\e", INT64),
        Column("bool", BOOL),
        Column("int32", INT32),
        Column("float32", FLOAT32),
        Column("float64", FLOAT64),
        Column("decimal", decimal_type(38, 6)),
        Column("string", STRING),
        Column("bytes", BYTES),
        Column("date", DATE),
        Column("timestamp", TIMESTAMP),
    ),
    ("select", "a b\"c'd\\e"),
)
MOMENT = datetime(2026, 11, 21, 12, 34, 56, 123456, tzinfo=UTC)
ODD_ROWS: Sequence[Mapping[str, Any]] = (
    {
        "select": "it's\t\\ \n \0 é 💡",
        "a b\"c'd\\e": -(2**63),
        "bool": False,
        "int32": -(2**31),
        "float32": 0.5,
        "float64": 1e300,
        "decimal": Decimal("-12345678901234567890123456789012.123456"),
        "string": "",
        "bytes": b"\x00\xff'\\",
        "date": date(1999, 12, 31),
        "timestamp": MOMENT,
    },
    {
        "select": "",
        "a b\"c'd\\e": 2**63 - 1,
        "bool": True,
        "int32": 2**31 - 1,
        "float32": None,
        "float64": None,
        "decimal": Decimal("0.000001"),
        "string": "NULL",
        "bytes": b"",
        "date": date(2100, 1, 1),
        "timestamp": datetime(1970, 1, 1, tzinfo=UTC),
    },
    dict.fromkeys((each.name for each in ODD.columns), None) | {"select": "x", "a b\"c'd\\e": 0},
)


class Node(NamedTuple):
    """A version of a row of the own table."""

    id: int
    title: str | None
    version: int
    deleted: bool = False
    path: str | None = "1/"


class Edge(NamedTuple):
    id: int
    user: int | None
    version: int
    deleted: bool = False
    path: str = "1/"


Row = Node | Edge


def batch(spec: TableSpec, rows: Iterable[Mapping[str, Any]], *, instance: str = "i") -> pa.RecordBatch:
    bookkeeping = {"_ref": "Node@global", "_instance": instance, "_version": 1, "_deleted": False}
    schema = pa.schema([each.with_nullable(True) for each in arrow_schema(spec)])
    return pa.RecordBatch.from_pylist([bookkeeping | dict(each) for each in rows], schema=schema)


def change(rows: Sequence[Row], *, instance: str = "i", specs: Sequence[TableSpec] = SPECS) -> Iterator[TableChange]:
    """One batch for each kind."""
    for kind, of in ((OWN, Node), ("AUTHOR", Edge)):
        own = []
        for row in rows:
            if isinstance(row, of):
                values = row._asdict()
                own.append(values | {"_version": values.pop("version"), "_deleted": values.pop("deleted")})
        if own:
            yield TableChange(kind, batch(spec_of(specs, kind), own, instance=instance))


def staged(target: TableTarget, physical: str, base: int, *rows: Row, instance: str = "i") -> bytes:
    return target.writer(physical, base).stage(change(rows, instance=instance))


def put(
    target: TableTarget,
    physical: str,
    *rows: Row,
    epoch: int,
    attempt: str,
    marks: Sequence[Mark] = (),
    scope: str = "",
    instance: str = "i",
) -> int:
    """Fence, stage, commit; returns the base."""
    base = target.within(scope).fence(physical, epoch, marks)
    parts = [staged(target, physical, base, *rows, instance=instance)]
    target.within(scope).commit(physical, base=base, epoch=epoch, attempt=attempt, staged=parts, marks=marks)
    return base


def staged_moves(
    target: TableTarget, physical: str, base: int, *rows: Row, instance: str = "i", moved: Moved = "remembered"
) -> bytes:
    """The same of rows that have left."""
    moves = [row._replace(deleted=True) for row in rows]
    return target.writer(physical, base).stage(each._replace(moved=moved) for each in change(moves, instance=instance))


def nodes(target: TableTarget, physical: str) -> dict[int, str | None]:
    """Read titles by id, as a reader finds them. Fails if a row is there twice."""
    found = target.read(physical, columns=["id", "title"]).to_pylist()
    assert len({each["id"] for each in found}) == len(found), found
    assert target.rows(physical) == len(found)
    return {each["id"]: each["title"] for each in found}


def edges(target: TableTarget, physical: str) -> dict[int, int | None]:
    found = target.read(physical, "AUTHOR", columns=["id", "user"]).to_pylist()
    assert len({each["id"] for each in found}) == len(found), found
    assert target.rows(physical, "AUTHOR") == len(found)
    return {each["id"]: each["user"] for each in found}


def commit_rows(target: TableTarget, physical: str, base: int, worker: int, rounds: int) -> None:
    """Write as one of several concurrent processes."""
    for number in range(rounds):
        name = f"w{worker}-{number}"
        base = target.fence(physical, 1)
        rows = (
            Node(1000 * (worker + 1) + number, name, number),
            Node(worker, name, number),
            Edge(worker, number, number),
        )
        parts = [staged(target, physical, base, *rows)]
        mark = Mark(name, 1, name.encode())
        target.commit(physical, base=base, epoch=1, attempt=name, staged=parts, marks=[mark])


class OnTables:
    """A part of the contract; see `instep.testing.table_target.TableTargetContract`."""

    physical = "Node__1"

    #: Whether staged rows are apart until they are committed; else readers may find them before, and though the commit
    #: was refused.
    apart: ClassVar[bool] = True

    @pytest.fixture
    def index(self, target: TableTarget) -> str:
        target.create(self.physical, SPECS)
        return self.physical
