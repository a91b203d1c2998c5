"""A document target in memory, complete and naive: what the real ones are compared with.

Copies (pickling included) share their rows within one process, as those of a real target would.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from instep.domain.document_columns import DocumentColumn
from instep.domain.filters import Condition
from instep.domain.waves import Mark
from instep.domain.words import TextQuery
from instep.errors import Conflict, Fenced, UserError
from instep.targets.document_target import (
    CONTENTS_ROWS,
    EQUAL,
    SEARCHED,
    ChunkChanges,
    FusionWeights,
    Hit,
    SearchMode,
    StoredRow,
    contents_schema,
    existing_schema,
    lacking_columns,
    retold_schema,
    written_schema,
)
from instep.targets.facets import Counted, Facet
from instep.targets.journal import refuse_fences
from instep.targets.ownership import NO_OWNER, OwnedIndexes, Owner
from instep.targets.ranking import Query, Search
from instep.testing.filter_drawing import holds

Row = dict[str, Any]


@dataclass
class _Index:
    """`rows` by locator; `history` holds (version, attempt, marks) of each commit, `fences` all marks with
    their version.
    """

    dimensions: int
    version: int = 1
    written_last: float = field(default_factory=time.monotonic)
    next_locator: int = 0
    rows: dict[int, Row] = field(default_factory=dict)
    written_at: dict[int, int] = field(default_factory=dict)
    removed_at: dict[int, int] = field(default_factory=dict)
    removed: dict[int, Row] = field(default_factory=dict)
    epoch: int = 0
    fences: list[tuple[int, Mark]] = field(default_factory=list)
    history: list[tuple[int, str, tuple[Mark, ...]]] = field(default_factory=list)

    def refuse(self, epoch: int, marks: Sequence[Mark], *, since: int = 0) -> None:
        """No stricter than the contract: fences count that were seen after version `since`."""
        if epoch < self.epoch:
            raise Fenced(f"epoch {epoch} is over: {self.epoch} was seen")
        for version, seen in self.fences:
            if version > since:
                refuse_fences(marks, {seen.slice_id: seen.fence})

    def remember(self, epoch: int, marks: Sequence[Mark]) -> None:
        self.version += 1
        self.epoch = epoch
        self.fences += [(self.version, mark) for mark in marks]


@dataclass
class _Store:
    indexes: dict[str, _Index] = field(default_factory=dict)
    aliases: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    staged: dict[str, list[ChunkChanges]] = field(default_factory=dict)
    #: Ids of ledgers, by the names of indexes and aliases.
    owners: dict[str, str] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.RLock)


_STORES: dict[str, _Store] = {}


@dataclass(frozen=True)
class MemoryTarget(OwnedIndexes):
    """Implements `targets.document_target.DocumentTarget`."""

    name: str = field(default_factory=lambda: str(uuid.uuid4()))
    owner: Owner = field(default=NO_OWNER, kw_only=True)

    @property
    def shown(self) -> str:
        return "memory"

    def owner_of(self, name: str) -> str | None:
        served = self.served(name)
        return self._store.owners.get(name) or self._store.owners.get(served or name)

    def claim(self, name: str, *, of: str) -> None:
        with self._store.lock:
            found = self.owner_of(name)
            if found is None:
                raise UserError(f"there is no index {name!r}")
            self._store.owners[name] = self.claimed(name, of, found)

    @property
    def kind(self) -> Literal["transactional"]:
        return "transactional"

    @property
    def _store(self) -> _Store:
        return _STORES.setdefault(self.name, _Store())

    def stored(self, physical: str) -> list[Row]:
        """All rows, for comparison with a model."""
        return list(self._store.indexes[physical].rows.values())

    def check(self) -> None:
        return

    def create(self, physical: str, dimensions: int, buckets: int, columns: Sequence[DocumentColumn] = ()) -> None:
        _check_name(physical)
        with self._store.lock:
            self._store.owners[physical] = self.demand(physical)
            self._store.indexes.setdefault(physical, _Index(dimensions))

    def exists(self, physical: str) -> bool:
        _check_name(physical)
        return physical in self._store.indexes

    def fence(self, physical: str, epoch: int, marks: Sequence[Mark] = ()) -> int:
        with self._store.lock:
            self._store.owners[physical] = self.demand(physical)
            index = self._store.indexes[physical]
            index.refuse(epoch, marks)
            if epoch > index.epoch or marks:
                index.remember(epoch, [Mark(mark.slice_id, mark.fence, b"") for mark in marks])
            return index.version

    def epoch(self, physical: str) -> int:
        return self._store.indexes[physical].epoch

    def writer(self, physical: str, base: int) -> MemoryWriter:
        return MemoryWriter(self, physical, base)

    def commit(
        self, physical: str, *, base: int, epoch: int, attempt: str, staged: Sequence[bytes], marks: Sequence[Mark]
    ) -> int:
        with self._store.lock:
            index = self._store.indexes[physical]
            if any(done == attempt for _, done, _ in index.history):
                return index.version
            index.refuse(epoch, marks, since=base)
            changes = [change for key in staged for change in self._store.staged[json.loads(key)["staged"]]]
            stale = [int(row["locator"]) for change in changes for row in change.stale.to_pylist()]
            retold = [row for change in changes if change.retold is not None for row in change.retold.to_pylist()]
            stale += [int(row["locator"]) for row in retold]
            if any(locator not in index.rows for locator in stale):
                raise Conflict("rows moved since the base version")
            index.remember(epoch, marks)
            index.written_last = time.monotonic()
            for locator in stale:
                index.removed[locator] = index.rows.pop(locator)
                index.removed_at[locator] = index.version
            rows = [row for change in changes for row in change.rows.to_pylist()]
            rows += [{**row, "vector": index.removed[row.pop("locator")]["vector"]} for row in retold]
            for row in rows:
                index.rows[index.next_locator] = row
                index.written_at[index.next_locator] = index.version
                index.next_locator += 1
            index.history.append((index.version, attempt, tuple(marks)))
            return index.version

    def committed(self, physical: str, since: int, slice_ids: Iterable[str]) -> Mapping[str, bytes]:
        wanted = set(slice_ids)
        return {
            mark.slice_id: mark.outcome
            for version, _, marks in self._store.indexes[physical].history
            for mark in marks
            if version > since and mark.slice_id in wanted
        }

    def refinable(self, physical: str) -> bool:
        return False

    def refine(self, physical: str) -> None:
        self.demand(physical)

    def maintain(self, physical: str, *, full: bool = False) -> None:
        self.demand(physical)

    def promote(self, alias: str, physical: str | None, epoch: int) -> None:
        _check_name(alias)
        if physical is not None:
            self._index(physical)
            self.demand(physical)
        with self._store.lock:
            owner = self.demand(alias)
            newest, served = self._store.aliases.get(alias, (epoch, physical))
            if newest > epoch:
                raise Fenced(f"epoch {epoch} is over: {newest} was promoted")
            if newest == epoch and served != physical:
                raise Conflict(f"epoch {epoch} serves {served}")
            self._store.aliases[alias] = (epoch, physical)
            self._store.owners[alias] = owner

    def served(self, alias: str) -> str | None:
        _check_name(alias)
        return self._store.aliases[alias][1] if alias in self._store.aliases else None

    def rows(self, physical: str) -> int:
        return len(self._store.indexes[physical].rows)

    def row(self, physical: str, id: str) -> StoredRow | None:
        for column in ("document_id", "chunk_id"):
            rows = [each for each in self.stored(physical) if each[column] == id]
            if rows:
                return _stored(min(rows, key=lambda each: each["chunk_index"]))
        return None

    def contents(self, physical: str) -> Iterator[pa.RecordBatch]:
        rows, schema = [*self._index(physical).rows.values()], contents_schema()
        for at in range(0, len(rows), CONTENTS_ROWS):
            some = [{name: row[name] for name in schema.names} for row in rows[at : at + CONTENTS_ROWS]]
            yield pa.RecordBatch.from_pylist(some, schema=schema)

    def written(self, physical: str, document_ids: Sequence[str], columns: Sequence[DocumentColumn] = ()) -> pa.Table:
        schema, wanted = written_schema(columns), set(document_ids)
        rows = [row for row in self.stored(physical) if row["document_id"] in wanted]
        if lacking := {each.name for each in columns if any(each.name not in row for row in rows)}:
            raise lacking_columns(physical, lacking, self.name)
        return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema=schema)

    def _indexes(self, prefix: str) -> list[str]:
        return sorted(each for each in self._store.indexes if each.startswith(prefix))

    def _idle(self, physical: str) -> float:
        return time.monotonic() - self._store.indexes[physical].written_last

    def drop(self, physical: str) -> None:
        _check_name(physical)
        self.demand(physical)
        self._store.indexes.pop(physical, None)
        self._store.owners.pop(physical, None)

    def search(
        self,
        physical: str,
        *,
        entity: str,
        text: TextQuery,
        vector: Sequence[float] | None,
        mode: SearchMode,
        limit: int,
        where: Condition | None = None,
        weights: FusionWeights = EQUAL,
        columns: Sequence[DocumentColumn] = (),
    ) -> list[Hit]:
        """Text: how often the words are there. Vector: the cosine."""
        asked = Search(entity, text, vector, mode, limit, where, weights, columns)
        dimensions = self._index(physical).dimensions
        chosen = [row for row in self.stored(physical) if where is None or holds(where, row)]

        def by_text(text: TextQuery, limit: int) -> list[Hit]:
            found = ((sum(map(row[SEARCHED].split().count, text.words)), row) for row in chosen)
            return asked.ranked(((n, row) for n, row in found if n and _has_phrases(row, text)), "bm25")[:limit]

        def by_vector(query: Query, limit: int) -> list[Hit]:
            found = ((_cosine(row["vector"], query.tolist()), row) for row in chosen)
            return asked.ranked(found, "cosine")[:limit]

        return asked.hits(dimensions, by_text, by_vector)

    def facets(self, physical: str, counted: Counted) -> dict[str, Facet]:
        text = counted.text
        rows = [
            row
            for row in self.stored(physical)
            if (counted.where is None or holds(counted.where, row))
            and (text is None or ({*text.words} & {*row[SEARCHED].split()} and _has_phrases(row, text)))
        ]

        def values(column: DocumentColumn) -> Iterator[tuple[Any, int]]:
            for row in rows:
                value = row[column.name]
                yield from ((each, 1) for each in (set(value or ()) if column.type.listed else [value]))

        return counted.facets({each.name: values(each) for each in counted.columns})

    def _index(self, physical: str) -> _Index:
        if physical not in self._store.indexes:
            raise UserError(f"there is no index {physical!r}")
        return self._store.indexes[physical]


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@=-]{0,199}", name):
        raise UserError(f"{name!r} cannot name an index")


def _has_phrases(row: Row, text: TextQuery) -> bool:
    return all(f" {' '.join(each)} " in f" {row[SEARCHED]} " for each in text.phrases)


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    scale = math.hypot(*one) * math.hypot(*other)
    return sum(a * b for a, b in zip(one, other, strict=True)) / scale if scale else 0.0


def _stored(row: Row) -> StoredRow:
    return StoredRow(
        row["document_id"],
        row["document_hash"],
        row["source_uri"],
        row["source_version"],
        row["chunk_id"],
        row["chunk_hash"],
        row["chunk_index"],
        row["title"],
        row["_ref"],
        row["_instance"],
        row["_version"],
    )


@dataclass(frozen=True)
class MemoryWriter:
    target: MemoryTarget
    physical: str
    base: int

    def existing(self, document_ids: Sequence[str], removed: Collection[str] = ()) -> pa.Table:
        index = self.target._store.indexes[self.physical]
        wanted = set(document_ids)
        live = [*index.rows.items(), *((key, row) for key, row in index.removed.items())]
        found = [
            {**{name: row[name] for name in existing_schema().names[:4]}, "locator": locator}
            for locator, row in live
            if row["document_id"] in wanted
            and index.written_at[locator] <= self.base
            and index.removed_at.get(locator, self.base + 1) > self.base
        ]
        return pa.Table.from_pylist(found, schema=existing_schema())

    def stored(self, document_ids: Sequence[str], columns: Sequence[DocumentColumn]) -> pa.Table:
        rows = self.target._store.indexes[self.physical].rows
        schema = retold_schema(columns)
        found = self.existing(document_ids)["locator"].to_pylist()
        return pa.Table.from_pylist(
            [{**rows[int(each)], "locator": each} for each in found if each is not None], schema=schema
        )

    def unfit(self, rows: pa.Table) -> Mapping[int, str]:
        return {}

    def stage(self, changes: Iterator[ChunkChanges]) -> bytes:
        key = str(uuid.uuid4())
        self.target._store.staged[key] = list(changes)
        return json.dumps({"staged": key}).encode()
