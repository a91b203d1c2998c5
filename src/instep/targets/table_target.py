"""The port of table targets. Its contract suite is `src/instep/testing/table_target.py`.

A *physical index* is several tables: the entity's own one (`<physical>`: rows, or nodes of a graph) and one for each
kind of edge (`<physical>__<kind>`). A row is known by its key alone. Rows come in any order and more than once, and of
two rows of one key that one stays which

1. has the higher `_version` (the source's watermark, not the checkpoint's);
2. at the same version is not deleted;
3. else came under the later epoch; of two partitions, came later.

So a deleted row is remembered with its version: an older row that comes late changes nothing.

Several partitions may share a physical index, each with epochs of its own: the `scope` of a target says whose these
are. Epochs of different scopes say nothing about each other, nor does who wrote a row say who may write it next: a row
that moves to another namespace is one row. Epochs, fences, marks and attempts mean what they mean in
`instep.targets.document_target.DocumentTarget`. Targets travel to Spark tasks, so they are picklable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

from instep.domain.columns import BOOL, INT64, STRING, Column, ColumnType
from instep.domain.graph import GraphTable
from instep.domain.refs import is_entity_name
from instep.errors import UserError
from instep.targets.document_target import IndexTarget

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

#: The kind of an index's own table.
OWN = ""

#: What stands in a kind's place where a store keeps its own records beside an index.
JOURNAL = "instep"

#: What every row has beside its own columns. `_version` is the watermark in microseconds, or the base of its wave.
REF, INSTANCE, VERSION, DELETED = "_ref", "_instance", "_version", "_deleted"
#: The condition of rows that a reader finds.
THERE = f"NOT {DELETED}"
BOOKKEEPING = (Column(REF, STRING), Column(INSTANCE, STRING), Column(VERSION, INT64), Column(DELETED, BOOL))


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One table of a physical index. Rows are kept in the order of `key` where a target keeps an order: name the scope
    first if it belongs to the key.

    `scope` is the column with the traversal path, by which namespaces are deleted. It need not be in the key: then a
    row that moves to another namespace stays one row.
    """

    kind: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    scope: str | None = None

    def __post_init__(self) -> None:
        if self.kind and (not is_entity_name(self.kind) or "__" in self.kind or self.kind.lower() == JOURNAL):
            raise UserError(
                f"{self.kind!r} cannot name a kind of edge",
                hint=f"Use letters, digits and single '_', starting with a letter; {JOURNAL!r} is taken.",
            )
        types = {each.name: each.type for each in self.columns}
        if len(types) != len(self.columns):
            raise UserError(f"{self} names a column twice")
        if clash := sorted(name for name in types if name.startswith("_")):
            raise UserError(f"{self}: column {clash[0]!r}", hint="Names with '_' at the front are Instep's own.")
        if not self.key or len(set(self.key)) != len(self.key) or not set(self.key) <= types.keys():
            raise UserError(f"{self}: its key {self.key} is not some of its columns")
        if floating := [name for name in self.key if not types[name].keys]:
            raise UserError(f"{self}: column {floating[0]!r} cannot be in a key", hint="NaN equals nothing: cast it.")
        if self.scope is not None and types.get(self.scope) != STRING:
            raise UserError(f"{self}: its scope {self.scope!r} is not a column of text")

    @classmethod
    def of(cls, table: GraphTable) -> TableSpec:
        """A table of a graph as a target keeps it."""
        return cls(table.kind, table.columns, table.key, table.scope)

    def __str__(self) -> str:
        return f"table {self.kind!r}" if self.kind else "the entity's own table"

    @property
    def all_columns(self) -> tuple[Column, ...]:
        return (*self.columns, *BOOKKEEPING)

    def type_of(self, column: str) -> ColumnType:
        for each in self.all_columns:
            if each.name == column:
                return each.type
        raise UserError(f"{self} has no column {column!r}")

    def table(self, physical: str) -> str:
        """Its name in the store."""
        return f"{physical}__{self.kind}" if self.kind else physical


class Drift(NamedTuple):
    """A difference of a stored table from its spec. `column` is empty when the whole table is meant; `found` or
    `expected` is empty for what is not there.
    """

    kind: str
    column: str
    expected: str
    found: str

    def __str__(self) -> str:
        what = f"column {self.column!r}" if self.column else "table"
        return f"{self.kind or 'own table'}: {what} is {self.found or 'missing'}, expected {self.expected or 'none'}"


class Held(NamedTuple):
    """Rows that a reader finds: those that one instance wrote, and those of all others."""

    mine: int
    others: int


def _unexpected_refusal(row: int, reason: str) -> None:
    raise UserError(f"row {row} of a batch: {reason}")


#: Whether the deletion of rows that moved is remembered (see `TableChange`).
Moved: TypeAlias = Literal["remembered", "forgotten"]


class TableChange(NamedTuple):
    """Rows of one table (its columns and `BOOKKEEPING`, in any order); of a deleted row only key, scope and bookkeeping
    count.

    `refuse` takes the place of a row among these, and why the index did not take it after all: told before the next
    changes are asked for, it is that row's failure.

    `moved`: the rows (all of them deleted) have left, perhaps for another partition. They delete what the partition
    that commits has of them, by the rule above, or was given of them in the same commit. Nothing is remembered of
    others: they may be all the rest of a large table. With "forgotten" they delete what the partition has of them
    whatever its version, and no later row has to be newer than they are: where versions tell when a row was written,
    the partition in which it is now may write it with an earlier one.
    """

    kind: str
    rows: pa.RecordBatch
    moved: Moved | None = None
    refuse: Callable[[int, str], None] = _unexpected_refusal


class Unfit(NamedTuple):
    """Rows (a mask) that a store cannot hold, for what they have in this column; `reason` says what that is."""

    column: str
    rows: NDArray[np.bool_]
    reason: str


class TableWriter(Protocol):
    """A task's way into one physical index. Picklable until it is used; not shared between threads."""

    def stage(self, changes: Iterator[TableChange]) -> bytes:
        """Consume all changes in bounded memory; returns what the driver needs to commit them (JSON bytes, not pickle).

        Raises `UserError` for rows without a key, and for those that are `unfit`.
        """


class TableTarget(IndexTarget, Protocol):
    """`transactional`: what one commit writes into one table becomes visible at once. `idempotent`: by and by."""

    @property
    def scope(self) -> str:
        """The scope whose epochs these are."""

    def within(self, scope: str) -> Self:
        """The same target, used for this partition."""

    def create(self, physical: str, specs: Sequence[TableSpec]) -> None:
        """Create the empty tables; nothing happens if they exist. Raises `UserError` if they exist and differ."""

    def specs(self, physical: str) -> Sequence[TableSpec]:
        """As it was created."""

    def drift(self, physical: str, specs: Sequence[TableSpec]) -> Sequence[Drift]:
        """The differences of the stored tables from these specs."""

    def unfit(self, spec: TableSpec, rows: pa.RecordBatch) -> Iterable[Unfit]:
        """Find values of these rows (columns of the spec, of their types) that cannot be held here. Everything else
        comes back exactly as it was. Asks no server: tasks call it for every batch.
        """

    def writer(self, physical: str, base: int) -> TableWriter:
        """The writer of rows into these tables, for one job. `base` is the version of the index when it began."""

    def leaving(self, physical: str, staged: Sequence[bytes]) -> int:
        """The number of rows of the own table that a reader finds now and that, below the path of the scope, a commit
        of these parts would delete because they `moved`.
        """

    def promote(self, alias: str, physical: str | None, epoch: int) -> None:
        """See `IndexTarget.promote`; any partition of a shared index may move its alias. An older epoch never
        overrides a newer one of its own partition: one that moved the alias, or one that what is served has seen. The
        same epoch again changes nothing, though another partition may have moved the alias since.
        """

    def rows(self, physical: str, kind: str = OWN) -> int:
        """Rows that a reader finds now."""

    def held(self, physical: str, instance: str, *, prefix: str = "") -> Held:
        """Rows of the own table that a reader finds now in the namespaces below `prefix` (all if it is empty), by
        whether this instance wrote them: the others are what `sweep` would delete.
        """

    def row(self, physical: str, key: Sequence[Any], kind: str = OWN) -> Mapping[str, Any] | None:
        """The row of this key, its bookkeeping included; None if there is none or it is deleted."""

    def read(
        self,
        physical: str,
        kind: str = OWN,
        *,
        where: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Rows that are not deleted and have these values, in any order."""

    def versions(self, physical: str) -> Iterator[pa.RecordBatch]:
        """The key, the scope if it has one, and `_version` of the own rows that a reader finds, in any order."""

    def sweep(self, physical: str, instance: str, *, epoch: int, prefix: str = "") -> None:
        """Delete rows (for good) that another instance than this one wrote, of namespaces below `prefix` (all if it is
        empty). Raises `Fenced` if a newer epoch was seen.
        """

    def delete_scope(self, physical: str, prefix: str, *, epoch: int) -> None:
        """Delete rows (for good) of the namespaces below `prefix`, such as `42/9970/`, and what is remembered there of
        deleted ones. Raises `Fenced` if a newer epoch was seen.
        """


@runtime_checkable
class Mappable(Protocol):
    """A target whose fields a project may declare."""

    def mapped(self, declared: Mapping[str, Any], place: str | None) -> Self:
        """The same target for an entity that declares this, at this place of the project."""

    def try_out(self, specs: Sequence[TableSpec]) -> None:
        """Have the server judge what is declared. Raises `UserError` with its reason."""


def checked_specs(specs: Sequence[TableSpec]) -> tuple[TableSpec, ...]:
    """The specs, the own table first."""
    kinds = [each.kind for each in specs]
    if kinds.count(OWN) != 1 or len(set(kinds)) != len(kinds):
        raise UserError(f"an index has one own table and one for each kind, not {kinds}")
    return tuple(sorted(specs, key=lambda each: each.kind != OWN))


def spec_of(specs: Iterable[TableSpec], kind: str) -> TableSpec:
    for each in specs:
        if each.kind == kind:
            return each
    raise UserError(f"there is no table {kind!r} in this index")


def version_columns(spec: TableSpec) -> list[str]:
    """The columns that tell rows, their namespaces and their versions apart."""
    scope = [spec.scope] if spec.scope and spec.scope not in spec.key else []
    return [*spec.key, *scope, VERSION]


def checked_prefix(spec: TableSpec, prefix: str) -> str:
    """The column of the scope, for a prefix that ends where a namespace ends."""
    if not prefix.endswith("/"):
        raise UserError(f"{prefix!r} is not a traversal path such as 42/9970/")
    if spec.scope is None:
        raise UserError(f"{spec} has no scope column", hint="Name one, or rebuild the index without this namespace.")
    return spec.scope


def arrow_schema(spec: TableSpec) -> pa.Schema:
    """Columns of its rows. Only key and bookkeeping are never null."""
    import pyarrow as pa

    from instep.arrow.types import arrow_type

    never_null = {*spec.key, *(each.name for each in BOOKKEEPING)}
    return pa.schema(
        [pa.field(each.name, arrow_type(each.type), nullable=each.name not in never_null) for each in spec.all_columns]
    )


def checked_rows(spec: TableSpec, schema: pa.Schema, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows as `schema` has them."""
    if missing := [name for name in schema.names if name not in rows.schema.names]:
        raise UserError(f"{spec}: column {missing[0]!r} is missing in the rows to write")
    for name in schema.names:
        if not schema.field(name).nullable and rows.column(name).null_count:
            raise UserError(
                f"{spec}: column {name!r} is null in {rows.column(name).null_count} rows",
                hint="A row without a key cannot be told from others: leave it out, or choose other key columns.",
            )
    return rows.select(schema.names).cast(schema)


def encode_specs(specs: Sequence[TableSpec]) -> str:
    """As a store keeps them beside the tables."""
    value = [
        {
            "kind": each.kind,
            "columns": [[column.name, str(column.type)] for column in each.columns],
            "key": each.key,
            "scope": each.scope,
        }
        for each in specs
    ]
    return json.dumps(value, separators=(",", ":"))


def decode_specs(text: str) -> tuple[TableSpec, ...]:
    return tuple(
        TableSpec(
            each["kind"],
            tuple(Column(name, ColumnType.parse(kind)) for name, kind in each["columns"]),
            tuple(each["key"]),
            each["scope"],
        )
        for each in json.loads(text)
    )
