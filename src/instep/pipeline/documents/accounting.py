"""The outcome of each document of a wave: it is written, skipped, deleted or failed, and counted once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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

    def slices(self) -> tuple[list[str], Array]:
        """The slices, and the number of that of each document."""
        coded: Any = self.column("slice_id").dictionary_encode()
        return coded.dictionary.to_pylist(), coded.indices.to_numpy(zero_copy_only=False)

    def rows_at(self, places: Array, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Rows at these places, with these columns, one by one."""
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
    """Count the documents of a group, each once: in whole columns, as a group may be of many slices."""
    group = _Group(ends, effects)
    names, numbers = ends.slices()
    counted = {name: _sums(values, numbers, len(names)) for name, values in group.counts().items()}
    lost = _sums(group.lost, numbers, len(names))
    kept, firsts = group.kept(numbers, len(names))
    for number, name in enumerate(names):
        done = slices.setdefault(name, SliceTally())
        done.add(**{each: values[number] for each, values in counted.items()})
        done.lost += int(lost[number])
        if firsts[number + 1] > firsts[number]:
            done.entries.append(kept.slice(firsts[number], firsts[number + 1] - firsts[number]))
    for tell, chosen in group.told():
        for number in np.unique(numbers[chosen]):
            tell(slices[names[number]], np.flatnonzero(chosen & (numbers == number)))


def _sums(values: Array, numbers: Array, count: int) -> Array:
    """The sum of the values of each slice."""
    sums: Array = np.bincount(numbers, values, count).astype(np.int64)  # Exact up to 2⁵³.
    return sums


@dataclass(frozen=True)
class _Group:
    ends: Ends
    effects: Effects

    @cached_property
    def _failed(self) -> Array:
        return self.effects.failed(self.ends)

    @cached_property
    def _there(self) -> Array:
        """A mask of the documents that are indexed now, or were before and are unchanged."""
        return ~(self._failed | self.ends.deleted | self.ends.vanished)

    @cached_property
    def _chunks(self) -> Array:
        chunks: Array = np.where(self.ends.unchanged, self.effects.stored, self.effects.wanted)
        return chunks

    @property
    def lost(self) -> Array:
        """The rows that each document had, and has no more though it is still there."""
        lost: Array = np.maximum(0, self.effects.stored - self._chunks) * self._there
        return lost

    def counts(self) -> dict[str, Array]:
        """Numbers of each document, by what they count."""
        ends, effects, good = self.ends, self.effects, ~self._failed
        hashed = ends.column("document_hash").is_valid().to_numpy(zero_copy_only=False)
        changed = ((effects.written > 0) | (effects.removed > 0)) & ~ends.deleted
        return {
            "read": np.ones(len(ends)),
            "bytes_read": ends.numbers("source_size") * hashed,
            "rows_written": effects.written * good,
            "rows_deleted": effects.removed * good,
            "embedded": effects.embedded * good,
            "deleted": good & ends.deleted & ~ends.vanished,
            "written": good & changed,
            "skipped": good & ~changed & ~(ends.deleted & ~ends.vanished),
            "rows_kept": (self._chunks - effects.written) * self._there,
        }

    def told(self) -> Iterator[tuple[Callable[[SliceTally, Array], None], Array]]:
        """Methods that tell of documents one by one, each with a mask of these, which are few."""
        yield self._fail, self._failed
        yield self._miss, self.ends.vanished & ~self._failed
        yield self._remove, self.ends.deleted & ~self._failed

    def _miss(self, done: SliceTally, places: Array) -> None:
        ids = self.ends.ids.take(pa.array(places)).to_pylist()
        done.unseen.extend(Unseen(each, gethostname()) for each in ids)

    def _remove(self, done: SliceTally, places: Array) -> None:
        done.removed.extend(self.ends.ids.take(pa.array(places)).to_pylist())

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

    def kept(self, numbers: Array, count: int) -> tuple[pa.Table, Array]:
        """The entries of those that are there, slice by slice, and the first one of each slice, and the end."""
        places = np.flatnonzero(self._there)
        places = places[np.argsort(numbers[places], kind="stable")]
        effects, ends, at = self.effects, self.ends, pa.array(places)

        def of_source(name: str) -> Any:
            return ends.column(name).take(at)

        digests = np.where(ends.unchanged, effects.stored_digest, effects.wanted_digest)
        columns = {
            "document_id": of_source("document_id"),
            "uri": of_source("source_uri"),
            "size": of_source("source_size"),
            "version": of_source("source_version"),
            "document_hash": of_source("document_hash").fill_null(""),
            "chunks": pa.array(self._chunks[places].astype(np.int64)),
            "bucket": of_source("bucket"),
            "digest": pa.array(digests[places]),
        }
        kept = pa.Table.from_arrays(list(columns.values()), schema=entry_schema())
        return kept, np.searchsorted(numbers[places], np.arange(count + 1))
