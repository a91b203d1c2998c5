"""Waves: slices that run together, and their outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby
from typing import Final, NamedTuple

from instep.domain.counts import Counts
from instep.domain.manifest import Action, DocumentChange, ManifestEntry, SizedChanges, StorableEntries
from instep.domain.money import NO_BILL, Bill
from instep.domain.refs import PartitionRef
from instep.domain.rows import RowSlice
from instep.domain.storable import LONGEST_ID, storable, storable_key, storable_version
from instep.domain.texts import hidden


@dataclass(frozen=True, slots=True)
class WaveSlice:
    """A claimed slice in a wave, with its work decoded: changes of documents, or a range of rows with an estimate of
    `expected` rows (0: unknown).
    """

    slice_id: str
    fence: int
    bucket: int
    work: int
    changes: Sequence[DocumentChange] = ()
    rows: RowSlice | None = None
    expected: int = 0

    @property
    def units(self) -> int | None:
        """The number of documents or rows that it reads; None if that is not known before."""
        return len(self.changes) if self.rows is None else None


@dataclass(frozen=True, slots=True)
class Wave:
    """Slices of one partition, run as one job of the engine, in at most so many `tasks`. `id` names this very
    attempt.
    """

    id: str
    ref: PartitionRef
    instance: str
    physical: str
    epoch: int
    base: int
    slices: tuple[WaveSlice, ...]
    tasks: int = 1

    @property
    def work(self) -> int:
        return sum(each.work for each in self.slices)


class Stage(NamedTuple):
    """A stage of Spark's work on a wave, by Spark's own number: so many of its tasks are done."""

    number: int
    done: int
    tasks: int


def assign_tasks(slices: Sequence[WaveSlice], tasks: int) -> list[list[WaveSlice]]:
    """Shares of the work of documents for at most so many tasks, the largest first; none is empty.

    The documents, by buckets, are one row of work, which is cut into equal lengths: a document belongs to the length
    that its middle lies in. So no share is larger than an even one by more than a document, whatever slices and buckets
    are like; a slice may be read by several tasks, a document by one, and few tasks meet in a bucket.
    """
    length = max(1, sum(each.work for each in slices)) / tasks
    shares: dict[int, list[WaveSlice]] = {}
    begin = 0.0
    for each in sorted(slices, key=lambda each: each.bucket):
        for share, piece in _pieces(each, begin, length):
            shares.setdefault(min(share, tasks - 1), []).append(piece)
        begin += each.work
    return sorted(shares.values(), key=lambda share: -sum(each.work for each in share))


def _pieces(whole: WaveSlice, begin: float, length: float) -> Iterator[tuple[int, WaveSlice]]:
    """The parts of a slice that lie in one length each, and in which. Of a document's work its size tells."""
    first, last = (int(at // length) for at in (begin, begin + whole.work))
    if first == last or len(whole.changes) < 2:
        yield int((begin + whole.work / 2) // length), whole
        return
    sizes = _sizes(whole.changes)
    scale = whole.work / sum(sizes)
    ends = list(accumulate(sizes))
    middles = (begin + (end - size / 2) * scale for end, size in zip(ends, sizes, strict=True))
    for share, places in groupby(enumerate(middles), lambda each: int(each[1] // length)):
        found = [place for place, _ in places]
        start, stop = found[0], found[-1] + 1
        work = (ends[stop - 1] - ends[start] + sizes[start]) * scale
        yield share, replace(whole, changes=whole.changes[start:stop], work=max(1, round(work)))


def _sizes(changes: Sequence[DocumentChange]) -> Sequence[int]:
    """The work of each change, by its size."""
    if isinstance(changes, SizedChanges):
        return changes.sizes()
    return [1 if each.action is Action.DELETE else 1 + each.size for each in changes]


#: The stage of a document that was left out because it is to be: it is counted as skipped, and kept with the failures,
#: so that it is not read again before it changes.
SKIPPED: Final = "skipped"

#: The stage of a document that was given up with its slice, after each of whose tries a worker or a wave had died:
#: nothing was found out of it.
GIVEN_UP: Final = "wave"


class Failure(NamedTuple):
    """A document or row that could not be indexed: which, at what stage, and why."""

    document_id: str
    uri: str
    version: str
    stage: str
    reason: str

    def storable(self) -> Failure:
        return Failure(
            storable_key(self.document_id, LONGEST_ID),
            storable(self.uri),
            storable_version(self.version),
            self.stage,
            storable(hidden(self.reason)),
        )


class Unseen(NamedTuple):
    """A listed document that a task did not find on its host: gone since, or out of that host's sight."""

    document_id: str
    host: str


@dataclass(frozen=True, slots=True)
class SliceOutcome:
    """The outcome of one slice. `entries` replace manifest rows, `removed` are ids to drop from it. `lost` counts the
    rows that documents had and have no more, though they are still there; of tables, rows that moved out. `unseen` are
    among the skipped.
    """

    slice_id: str
    fence: int
    counts: Counts
    entries: Sequence[ManifestEntry] = ()
    removed: Sequence[str] = ()
    failures: Sequence[Failure] = ()
    lost: int = 0
    unseen: Sequence[Unseen] = ()

    def storable(self) -> SliceOutcome:
        """The outcome in a form that ledgers can store: one bad text must not prevent the record."""
        stored = self.entries
        return replace(
            self,
            entries=stored if isinstance(stored, StorableEntries) else [each.storable() for each in stored],
            removed=[storable_key(each, LONGEST_ID) for each in self.removed],
            failures=[each.storable() for each in self.failures],
        )


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """The outcome of one task of a wave: staged rows (the target's own bytes) and slice outcomes. `cpu`: seconds of CPU
    of its Python, where that is another process than the driver's. `bill`: of what its process had embedded for it.
    """

    staged: bytes
    slices: Sequence[SliceOutcome] = field(default_factory=tuple)
    cpu: float = 0.0
    bill: Bill = NO_BILL


class Mark(NamedTuple):
    """Travels in a target's commit: which slice, under which fence, and its outcome as bytes."""

    slice_id: str
    fence: int
    outcome: bytes
