"""Targets that are wrong in one way each, for the contract suite to find."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from instep.domain.document_columns import DocumentColumn
from instep.targets.document_target import ChunkChanges, Hit
from tests.doubles.memory_target import MemoryTarget, MemoryWriter, Row


class _Writing(MemoryTarget):
    """A target with a writer of its own."""

    def writer(self, physical: str, base: int) -> MemoryWriter:
        raise NotImplementedError


class _KeepsTheDeleted(MemoryWriter):
    def stage(self, changes: Iterator[ChunkChanges]) -> bytes:
        return super().stage(each if each.rows.num_rows else each._replace(stale=each.stale[:0]) for each in changes)


class LosesADelete(_Writing):
    def writer(self, physical: str, base: int) -> MemoryWriter:
        return _KeepsTheDeleted(self, physical, base)


class _KeepsTheReplaced(MemoryWriter):
    def stage(self, changes: Iterator[ChunkChanges]) -> bytes:
        return super().stage(each._replace(stale=each.stale[1:]) for each in changes)


class KeepsARowThatWasReplaced(_Writing):
    def writer(self, physical: str, base: int) -> MemoryWriter:
        return _KeepsTheReplaced(self, physical, base)


class _LooksAtTheNewest(MemoryWriter):
    def existing(self, document_ids: Sequence[str], removed: Collection[str] = ()) -> pa.Table:
        return MemoryWriter(self.target, self.physical, 10**9).existing(document_ids, removed)


class ReadsBehindItsBase(_Writing):
    def writer(self, physical: str, base: int) -> MemoryWriter:
        return _LooksAtTheNewest(self, physical, base)


class _LooksAtAThousand(MemoryWriter):
    def existing(self, document_ids: Sequence[str], removed: Collection[str] = ()) -> pa.Table:
        return super().existing([*document_ids][:500], removed)


class FindsTheFirstFiveHundred(_Writing):
    def writer(self, physical: str, base: int) -> MemoryWriter:
        return _LooksAtAThousand(self, physical, base)


class WritesAgainWhatIsRepeated(MemoryTarget):
    """Not idempotent: a commit whose answer was lost is done once more."""

    def commit(self, physical: str, *, attempt: str, **rest: Any) -> int:
        return super().commit(physical, attempt=f"{attempt} {uuid.uuid4()}", **rest)


class IgnoresEpochs(MemoryTarget):
    def commit(self, physical: str, **rest: Any) -> int:
        self._store.indexes[physical].epoch = 0
        return super().commit(physical, **rest)


class IgnoresFencesOfSlices(MemoryTarget):
    def commit(self, physical: str, **rest: Any) -> int:
        self._store.indexes[physical].fences.clear()
        return super().commit(physical, **rest)


class ForgetsWhatIsCommitted(MemoryTarget):
    def committed(self, physical: str, since: int, slice_ids: Iterable[str]) -> Mapping[str, bytes]:
        return {}


class ShowsHalfACommit(MemoryTarget):
    """Rows are taken out before the new ones come."""

    def commit(self, physical: str, **rest: Any) -> int:
        rows = self._store.indexes[physical].rows
        gone = dict(rows)
        rows.clear()
        time.sleep(0.002)
        rows.update(gone)
        return super().commit(physical, **rest)


class CommitsAPartAlone(MemoryTarget):
    def commit(self, physical: str, *, staged: Sequence[bytes], **rest: Any) -> int:
        return super().commit(physical, staged=staged[:1], **rest)


class MixesInstances(MemoryTarget):
    """A search, and what is counted of it, goes through all builds."""

    def search(self, physical: str, **rest: Any) -> list[Hit]:
        whole = _Mixed(self.name, owner=self.owner)
        whole._index(physical)
        return MemoryTarget.search(whole, physical, **rest)


class _Mixed(MemoryTarget):
    def stored(self, physical: str) -> list[Row]:
        return [row for index in self._store.indexes.values() for row in index.rows.values()]


class IgnoresFilters(MemoryTarget):
    def search(self, physical: str, *, where: Any = None, **rest: Any) -> list[Hit]:
        return super().search(physical, **rest)


class FiltersWhatItHasFound(MemoryTarget):
    """After the limit, not before it."""

    def search(self, physical: str, *, where: Any = None, limit: int, **rest: Any) -> list[Hit]:
        found = super().search(physical, limit=limit, **rest)
        right = {each.chunk_id for each in super().search(physical, where=where, limit=1_000, **rest)}
        return [each for each in found if each.chunk_id in right]


class MovesAnAliasBack(MemoryTarget):
    """A worker that lost its lease serves its old build."""

    def promote(self, alias: str, physical: str | None, epoch: int) -> None:
        served = self._store.aliases.pop(alias, None)
        try:
            super().promote(alias, physical, epoch)
        except Exception:
            if served is not None:
                self._store.aliases[alias] = served
            raise


class EmptiesWhatIsThere(MemoryTarget):
    """Creating twice is beginning anew."""

    def create(self, physical: str, dimensions: int, buckets: int, columns: Sequence[DocumentColumn] = ()) -> None:
        self._store.indexes.pop(physical, None)
        super().create(physical, dimensions, buckets, columns)


class CountsOneTooFew(MemoryTarget):
    def rows(self, physical: str) -> int:
        return max(0, super().rows(physical) - 1)


class StaysAtHome(MemoryTarget):
    """A copy in another process is another store."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


class TakesTheIndexesOfOthers(MemoryTarget):
    def demand(self, name: str) -> str:
        return self.owner.id


#: What is wrong, and a test of the suite that finds it.
TARGETS: dict[str, tuple[type[MemoryTarget], str]] = {
    each.__name__: (each, test)
    for each, test in (
        (LosesADelete, "test_all_rows_deleted_then_written_again"),
        (KeepsARowThatWasReplaced, "test_updates_and_deletes_of_one_commit"),
        (ReadsBehindItsBase, "test_existing_reads_at_its_base"),
        (FindsTheFirstFiveHundred, "test_existing_gives_all_rows_of_the_asked_documents_only"),
        (WritesAgainWhatIsRepeated, "test_a_replayed_attempt_changes_nothing"),
        (IgnoresEpochs, "test_a_zombie_of_an_older_epoch_is_refused_and_not_visible"),
        (IgnoresFencesOfSlices, "test_a_zombie_with_an_older_fence_of_a_slice_is_refused"),
        (ForgetsWhatIsCommitted, "test_committed_returns_the_outcomes"),
        (ShowsHalfACommit, "test_a_reader_never_sees_half_a_commit"),
        (CommitsAPartAlone, "test_parts_of_several_tasks_become_visible_at_once"),
        (MixesInstances, "test_each_build_is_searched_and_read_by_itself"),
        (IgnoresFilters, "test_a_filter_finds_the_rows_that_it_holds_for"),
        (FiltersWhatItHasFound, "test_rows_are_chosen_before_they_are_ranked"),
        (MovesAnAliasBack, "test_an_older_epoch_never_overrides_a_newer_one"),
        (EmptiesWhatIsThere, "test_creating_twice_keeps_the_rows"),
        (CountsOneTooFew, "test_written_rows_are_read_back_as_a_multiset"),
        (StaysAtHome, "test_travels_pickled"),
        (TakesTheIndexesOfOthers, "test_an_index_of_another_ledger_is_never_written_dropped_nor_promoted"),
    )
}
