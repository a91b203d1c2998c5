"""A task's side: rows into the indexes of their tables, each only over one that it wins against.

A row that may be new is created. Where there is one already, that is read, and which of the two stays is decided by
the rule of `instep.targets.table_target`; what is written then names what was read (its sequence number), so that
whatever came in between is looked at again. So writers need no order and no lock, and a late one changes nothing.

Rows that leave for a place that is not indexed are deleted by the commit: until then they are kept in the journal.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa

from instep.domain.waves import Mark
from instep.targets import table_target
from instep.targets.journal import Journal, now
from instep.targets.opensearch import row_layout
from instep.targets.opensearch.bulk import Bulk, Item, Pace
from instep.targets.opensearch.indexes import Found, Indexes
from instep.targets.opensearch.layout import coded
from instep.targets.opensearch.log import Log
from instep.targets.opensearch.row_layout import BASE, DELETED, INSTANCE, REF, SWEPT, VERSION
from instep.targets.opensearch.row_lines import ids, lines
from instep.targets.request_limits import portions
from instep.targets.table_target import TableChange, TableSpec, arrow_schema, checked_rows, spec_of

#: Rows that are looked at in one request, and that are made into JSON at once.
_LOOKED_AT = 2_000
_MADE_AT_ONCE = 5_000

#: A larger share of rows that were there already, and the next ones are looked up first.
_MANY = 0.2

#: What decides between two rows of one key.
RANK_FIELDS = (REF, VERSION, BASE, DELETED, SWEPT)

_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("id", pa.string()),
    ("version", pa.int64()),
    ("ref", pa.string()),
    ("instance", pa.string()),
]
_MOVED = pa.schema(_COLUMNS)


class Rank(NamedTuple):
    """The things that decide between two rows of one key. `base`: what the index had when the row's wave began, which
    grows with each epoch.
    """

    ref: str
    version: int
    live: bool
    base: int
    swept: bool = False

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Rank:
        return cls(stored[REF], stored[VERSION], not stored.get(DELETED), stored[BASE], SWEPT in stored)

    def wins(self, there: Rank) -> bool:
        """Against what is there. A row that was swept says nothing but that writers of the past are too late."""
        if there.swept:
            return self.ref != there.ref or self.base > there.base
        return (self.version, self.live, self.base) >= (there.version, there.live, there.base)


@dataclass(frozen=True, slots=True)
class RowItem(Item):
    """An item with what decides over it. `place`: in its batch. `document_id` says nothing here."""

    rank: Rank
    source: bytes
    place: int

    def created(self) -> RowItem:
        return _item(self, {"create": {"_id": self.chunk_id}})

    def over(self, there: Found) -> RowItem:
        return _item(self, {"index": {"_id": self.chunk_id, **_met(there)}})


def _met(there: Found) -> dict[str, int]:
    return {"if_seq_no": there.seq_no, "if_primary_term": there.primary_term}


def gone(id: str, there: Found) -> Item:
    """An item that drops a document for good, if it is still what it was."""
    return Item(id, "", "delete", json.dumps({"delete": {"_id": id, **_met(there)}}).encode() + b"\n")


def _item(row: RowItem, head: Mapping[str, Any]) -> RowItem:
    (action,) = head
    return RowItem(
        row.chunk_id, "", action, json.dumps(head).encode() + b"\n" + row.source, row.rank, row.source, row.place
    )


def tombstone(id: str, rank: Rank, instance: str) -> RowItem:
    """An item for a row that is not there any more."""
    said = {REF: rank.ref, INSTANCE: instance, VERSION: rank.version, BASE: rank.base, DELETED: True}
    if rank.swept:
        said[SWEPT] = now()
    return RowItem(id, "", "", b"", rank, json.dumps(said).encode() + b"\n", 0)


@dataclass
class Placing:
    """Puts rows into one index. Not shared between threads."""

    indexes: Indexes
    index: str
    pace: Pace
    _known: bool = False

    @cached_property
    def _bulk(self) -> Bulk:
        return Bulk(self.indexes.connection, self.index, self.pace)

    def put(self, rows: Iterable[RowItem], count: int) -> list[tuple[Item, str]]:
        """Returns the rows that the server refuses, with its reasons, when all others are in or have lost."""
        sent = self._bulk.put(self._placed(rows) if self._known else (each.created() for each in rows))
        self._known = self._known or len(sent.met) > _MANY * count
        return sent.refused + self._again(sent.met)

    def replace(self, rows: Iterable[RowItem]) -> None:
        """The same of rows that name what they replace."""
        self._again(self._bulk.put(rows).met)

    def take_out(self, rows: Iterable[Item]) -> bool:
        """Put rows that name what they replace. True if all of them are in: what came in between stays."""
        return not self._bulk.put(rows).met

    def _again(self, met: Sequence[tuple[Item, str]]) -> list[tuple[Item, str]]:
        refused: list[tuple[Item, str]] = []
        while met:
            sent = self._bulk.put(self._placed(item for item, _ in met if isinstance(item, RowItem)))
            refused += sent.refused
            met = sent.met
        return refused

    def _placed(self, rows: Iterable[RowItem]) -> Iterator[RowItem]:
        """Those that win, as items over what is there now."""
        rows = iter(rows)
        while some := list(islice(rows, _LOOKED_AT)):
            best: dict[str, RowItem] = {}
            for each in some:
                other = best.setdefault(each.chunk_id, each)
                if other is not each and each.rank.wins(other.rank):
                    best[each.chunk_id] = each
            found = self.indexes.look(self.index, list(best), RANK_FIELDS)
            for id, each in best.items():
                there = found.get(id)
                if there is None:
                    yield each.created()
                elif each.rank.wins(Rank.of(there.source)):
                    yield each.over(there)


class Moves(NamedTuple):
    """Rows of one table that have left, kept in the journal."""

    kind: str
    token: str
    pieces: int
    forgotten: bool = False

    def read(self, log: Log) -> pa.Table:
        with pa.ipc.open_stream(log.kept(self.token, _MOVES, 0, self.pieces)) as reader:
            return reader.read_all()


_MOVES = "moves"


def moves_in(staged: Iterable[bytes]) -> list[Moves]:
    return [Moves(*each) for part in staged for each in json.loads(part)[_MOVES]]


@dataclass
class OpenSearchRowWriter:
    """See `TableWriter`. Rows are found from the next refresh on, `commit` at last."""

    indexes: Indexes
    physical: str
    base: int
    specs: Sequence[TableSpec]
    declared: row_layout.Declared
    pace: Pace
    _placings: dict[str, Placing] = field(default_factory=dict, init=False)

    def stage(self, changes: Iterator[TableChange]) -> bytes:
        made = Log(self.indexes, self.physical).entry(self.base)
        log = Log(self.indexes, self.physical, (made or {}).get("scope", ""))
        journal = Journal(log)
        epoch = journal.epoch(self.base)
        moves: list[Moves] = []
        for change in changes:
            spec = spec_of(self.specs, change.kind)
            rows = checked_rows(spec, arrow_schema(spec), change.rows)
            journal.demand_current(epoch)
            if change.moved:
                moves.append(self._moved(spec, rows, log, epoch, forgotten=change.moved == "forgotten"))
                continue
            refused = self._placing(spec).put(self._items(spec, rows), rows.num_rows)
            for item, reason in refused:
                assert isinstance(item, RowItem)
                change.refuse(item.place, f"the server refused it: {reason}")
        return json.dumps({_MOVES: moves}).encode()

    def _placing(self, spec: TableSpec) -> Placing:
        if spec.kind not in self._placings:
            self._placings[spec.kind] = Placing(self.indexes, coded(spec.table(self.physical)), self.pace)
        return self._placings[spec.kind]

    def _items(self, spec: TableSpec, rows: pa.RecordBatch) -> Iterator[RowItem]:
        """Some are on their way while the next are made."""
        for at in range(0, rows.num_rows, _MADE_AT_ONCE):
            yield from self._made(spec, rows.slice(at, _MADE_AT_ONCE), at)

    def _made(self, spec: TableSpec, rows: pa.RecordBatch, first: int) -> Iterator[RowItem]:
        made = lines(spec, rows, row_layout.fields(spec, self.declared), self.base)
        said = (table_target.REF, table_target.VERSION, table_target.DELETED)
        refs, versions, gone = (list[Any](rows.column(name).to_pylist()) for name in said)
        rows_of = zip(made.ids, made.sources, refs, versions, gone, strict=True)
        for place, (id, source, ref, version, deleted) in enumerate(rows_of, first):
            yield RowItem(id, "", "", b"", Rank(ref, version, not deleted, self.base), source, place)

    def _moved(self, spec: TableSpec, rows: pa.RecordBatch, log: Log, epoch: int, *, forgotten: bool) -> Moves:
        found = pa.record_batch(
            [
                pa.array(ids(spec, rows), pa.string()),
                *(rows.column(name) for name in (table_target.VERSION, table_target.REF, table_target.INSTANCE)),
            ],
            schema=_MOVED,
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _MOVED, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_batch(found)
        token = uuid.uuid4().hex
        ((_, _, pieces),) = log.keep(token, [Mark(_MOVES, 0, sink.getvalue().to_pybytes())], epoch)
        return Moves(spec.kind, token, pieces, forgotten)


def leaving(
    indexes: Indexes, index: str, log: Log, moves: Iterable[Moves], below: tuple[str, str] | None, *, base: int
) -> Iterator[RowItem]:
    """Tombstones of rows that are there, older than what says that they have left, and with a path `below` that of the
    partition (the column, and the path). Where that is forgotten they are just later than what they delete.
    """
    fields = [*RANK_FIELDS, below[0]] if below else RANK_FIELDS
    for move in moves:
        rows = move.read(log)
        latest: dict[str, tuple[int, str, str]] = {}
        columns: list[list[Any]] = [rows.column(name).to_pylist() for name in _MOVED.names]
        for id, version, ref, instance in zip(*columns, strict=True):
            latest[id] = max(latest.get(id, (version, ref, instance)), (version, ref, instance))
        for some in portions(list(latest), _LOOKED_AT):
            for id, there in indexes.look(index, some, fields).items():
                rank, (version, ref, instance) = Rank.of(there.source), latest[id]
                left = Rank(ref, rank.version + 1 if move.forgotten else version, False, base)
                within = below is None or str(there.source.get(below[0]) or "").startswith(below[1])
                if rank.live and within and left.wins(rank):
                    yield tombstone(id, left, instance).over(there)
