"""The outcome of each document of a wave: it is written, skipped, deleted or failed, and counted once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from socket import gethostname
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.document_state.entries import entry_columns, entry_schema
from instep.domain.counts import Counts
from instep.domain.manifest import ManifestEntry
from instep.domain.texts import cleaned
from instep.domain.waves import SKIPPED, Failure, SliceOutcome, Unseen

if TYPE_CHECKING:
    from instep.pipeline.documents.narrowing import Left

    Array = np.ndarray[Any, np.dtype[Any]]


class Ends:
    """The end rows of some documents (`CHUNK_SCHEMA`): what became of each so far, in columns."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows.combine_chunks()
        self.ids: Any = self.column("document_id")
        self.deleted, self.unchanged, self.vanished = map(self._flags, ("deleted", "unchanged", "vanished"))
        stage = self.column("failure_stage").fill_null("")
        self.failed: Array = pc.not_equal(stage, pa.scalar("")).to_numpy(zero_copy_only=False)
        #: Read and cut: all of its chunks are there.
        self.complete: Array = ~(self.deleted | self.unchanged | self.vanished | self.failed)
        self.compared: Array = self.complete | self.deleted

    def __len__(self) -> int:
        return self._rows.num_rows

    def column(self, name: str) -> Any:
        found = self._rows[name]
        return found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()

    def numbers(self, name: str) -> Array:
        values: Array = self.column(name).to_numpy(zero_copy_only=False)
        return values

    def _flags(self, name: str) -> Array:
        return self.numbers(name).astype(bool)

    def id_of(self, place: int) -> str:
        found: str = self.ids[place].as_py()
        return found

    def ids_of(self, chosen: Array) -> list[str]:
        """The ids of those that a mask marks."""
        found: list[str] = self.ids.filter(pa.array(chosen)).to_pylist()
        return found

    def place_of(self, document_id: str) -> int:
        """The place of a document. Raises `KeyError`."""
        place: int = pc.index(self.ids, pa.scalar(document_id)).as_py()
        if place < 0:
            raise KeyError(document_id)
        return place

    def by_slice(self) -> Iterator[tuple[str, Array]]:
        """Each slice, with the places of its documents."""
        coded: Any = self.column("slice_id").dictionary_encode()
        names, codes = coded.dictionary.to_pylist(), coded.indices.to_numpy(zero_copy_only=False)
        for code, name in enumerate(names):
            yield name, np.flatnonzero(codes == code)

    def rows_at(self, places: Array, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """These columns of some of them, one by one."""
        some = self._rows.select(names).take(pa.array(places, pa.int64()))
        return zip(*(column.to_pylist() for column in some.columns), strict=True)


class Effects(NamedTuple):
    """Rows of each document of a group, by its place in the group. `flaws`: the stage at which it failed while it was
    written, and why; `left`: what is left of the older version of one that failed.
    """

    wanted: Array
    written: Array
    removed: Array
    embedded: Array
    stored: Array
    wanted_digest: Array
    stored_digest: Array
    flaws: dict[int, tuple[str, str]]
    left: dict[int, Left]

    def failed(self, ends: Ends) -> Array:
        """A mask of the documents that failed: when they were read, or when they were written."""
        failed = ends.failed.copy()
        failed[list(self.flaws)] = True
        return failed


@dataclass
class SliceTally:
    """The progress of one slice."""

    counts: Counter[str] = field(default_factory=Counter)
    entries: list[pa.Table] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    lost: int = 0
    unseen: list[Unseen] = field(default_factory=list)

    def outcome(self, name: str) -> SliceOutcome:
        entries = entry_columns(pa.concat_tables(self.entries)) if self.entries else ()
        told = entries, self.removed, self.failures, self.lost, self.unseen
        return SliceOutcome(name, 0, Counts.from_dict(self.counts), *told)

    def add(self, **counts: int | np.integer[Any]) -> None:
        for name, number in counts.items():
            self.counts[name] += int(number)


def account(slices: dict[str, SliceTally], ends: Ends, effects: Effects) -> None:
    """Count the documents of a group, each once."""
    group = _Group(ends, effects)
    for name, places in ends.by_slice():
        group.account(slices.setdefault(name, SliceTally()), places)


@dataclass(frozen=True)
class _Group:
    ends: Ends
    effects: Effects

    @cached_property
    def _failed(self) -> Array:
        return self.effects.failed(self.ends)

    @cached_property
    def _sizes(self) -> Array:
        return self.ends.numbers("source_size")

    @cached_property
    def _read(self) -> Array:
        valid: Array = self.ends.column("document_hash").is_valid().to_numpy(zero_copy_only=False)
        return valid

    def account(self, done: SliceTally, places: Array) -> None:
        done.add(read=len(places), bytes_read=self._sizes[places][self._read[places]].sum())
        failed = self._failed[places]
        if failed.any():
            self._fail(done, places[failed])
        places, effects = places[~failed], self.effects
        written, removed = effects.written[places], effects.removed[places]
        done.add(rows_written=written.sum(), rows_deleted=removed.sum(), embedded=effects.embedded[places].sum())
        deleted, vanished = self.ends.deleted[places], self.ends.vanished[places]
        if vanished.any():
            ids = self.ends.ids.take(pa.array(places[vanished])).to_pylist()
            done.unseen.extend(Unseen(each, gethostname()) for each in ids)
        if deleted.any():
            done.add(deleted=(deleted & ~vanished).sum(), skipped=(deleted & vanished).sum())
            done.removed.extend(self.ends.ids.take(pa.array(places[deleted])).to_pylist())
        changed = ((written > 0) | (removed > 0))[~deleted]
        done.add(written=changed.sum(), skipped=(~changed).sum())
        there = ~(deleted | vanished)
        if there.any():
            self._keep(done, places[there])

    def _fail(self, done: SliceTally, places: Array) -> None:
        names = (
            "document_id",
            "source_uri",
            "source_version",
            "source_size",
            "bucket",
            "failure_stage",
            "failure_reason",
        )
        rows = self.ends.rows_at(places, names)
        kept = []
        for place, (identity, uri, version, size, bucket, *told) in zip(places.tolist(), rows, strict=True):
            stage, reason = self.effects.flaws.get(place) or told
            done.add(**{"skipped" if stage == SKIPPED else "failed": 1})
            left = self.effects.left.get(place)
            if left is not None:
                # Of no version and no content: whatever comes next is written, though it is what was there before.
                kept.append(ManifestEntry(identity, uri, size, "", "", left.chunks, bucket, left.digest))
            done.failures.append(Failure(identity, uri, version, stage, cleaned(reason, left.note if left else "")))
        if kept:
            arrays = [
                pa.array(each, field.type) for each, field in zip(zip(*kept, strict=True), entry_schema(), strict=True)
            ]
            done.entries.append(pa.Table.from_arrays(arrays, schema=entry_schema()))

    def _keep(self, done: SliceTally, places: Array) -> None:
        """Those that are indexed now, or were before and are as they were."""
        effects, ends = self.effects, self.ends
        unchanged, stored = ends.unchanged[places], effects.stored[places]
        chunks = np.where(unchanged, stored, effects.wanted[places])
        done.lost += int(np.maximum(0, stored - chunks).sum())
        done.add(rows_kept=(chunks - effects.written[places]).sum())
        at = pa.array(places)

        def of_source(name: str) -> Any:
            return ends.column(name).take(at)

        columns = {
            "document_id": of_source("document_id"),
            "uri": of_source("source_uri"),
            "size": of_source("source_size"),
            "version": of_source("source_version"),
            "document_hash": of_source("document_hash").fill_null(""),
            "chunks": pa.array(chunks.astype(np.int64)),
            "bucket": of_source("bucket"),
            "digest": pa.array(np.where(unchanged, effects.stored_digest[places], effects.wanted_digest[places])),
        }
        done.entries.append(pa.Table.from_arrays(list(columns.values()), schema=entry_schema()))
