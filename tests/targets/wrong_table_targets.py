"""Targets of tables that are wrong in one way each, for the contract suite to find."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from instep.domain.waves import Mark
from instep.targets.lance import LanceTableTarget
from instep.targets.table_target import DELETED, OWN, VERSION, Held, TableChange


class _Staging:
    """A writer that stages other changes than it is given."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def stage(self, changes: Iterator[TableChange]) -> bytes:
        staged: bytes = self._writer.stage(each._replace(rows=self.instead(each.rows)) for each in changes)
        return staged

    def instead(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        raise NotImplementedError


class _WithoutDeletes(_Staging):
    def instead(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.filter(pc.invert(rows[DELETED]))


class LosesADelete(LanceTableTarget):
    def writer(self, physical: str, base: int) -> Any:
        return _WithoutDeletes(super().writer(physical, base))


class _OfOneVersion(_Staging):
    def instead(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        at = rows.schema.get_field_index(VERSION)
        return rows.set_column(at, rows.schema.field(at), pa.array([1] * rows.num_rows, rows.schema.field(at).type))


class KeepsTheLastThatCame(LanceTableTarget):
    """Whatever its version."""

    def writer(self, physical: str, base: int) -> Any:
        return _OfOneVersion(super().writer(physical, base))


class IgnoresEpochs(LanceTableTarget):
    def commit(self, physical: str, *, epoch: int, **rest: Any) -> int:
        return super().commit(physical, epoch=max(epoch, self.epoch(physical)), **rest)


class IgnoresFencesOfSlices(LanceTableTarget):
    def commit(self, physical: str, *, marks: Sequence[Mark], **rest: Any) -> int:
        return super().commit(physical, marks=[each._replace(fence=10**6) for each in marks], **rest)


class ForgetsWhatIsCommitted(LanceTableTarget):
    def committed(self, physical: str, since: int, slice_ids: Iterable[str]) -> Mapping[str, bytes]:
        return {}


class MixesInstances(LanceTableTarget):
    def held(self, physical: str, instance: str, *, prefix: str = "") -> Held:
        mine, others = super().held(physical, instance, prefix=prefix)
        return Held(mine + others, 0)


class SweepsAllNamespaces(LanceTableTarget):
    def sweep(self, physical: str, instance: str, *, epoch: int, prefix: str = "") -> None:
        super().sweep(physical, instance, epoch=epoch)


class DeletesTheNeighbour(LanceTableTarget):
    """The namespace 1/ and what begins like it."""

    def delete_scope(self, physical: str, prefix: str, *, epoch: int) -> None:
        super().delete_scope(physical, prefix, epoch=epoch)
        paths = {
            str(each)
            for each in self.read(physical, columns=[self.specs(physical)[0].scope or ""]).column(0).to_pylist()
        }
        for path in paths:
            if path.startswith(prefix.rstrip("/")):
                super().delete_scope(physical, path, epoch=epoch)


class ReadsWhatIsDeleted(LanceTableTarget):
    def row(self, physical: str, key: Sequence[Any], kind: str = OWN) -> Mapping[str, Any] | None:
        return super().row(physical, key, kind) or {"id": key[0]}


#: What is wrong, and a test of the suite that finds it.
TABLE_TARGETS: dict[str, tuple[type[LanceTableTarget], str]] = {
    each.__name__: (each, test)
    for each, test in (
        (LosesADelete, "test_a_deleted_row_is_not_resurrected_by_an_older_one_however_late"),
        (KeepsTheLastThatCame, "test_in_any_order_of_arrival_the_newest_row_stays"),
        (IgnoresEpochs, "test_a_zombie_of_an_older_epoch_is_refused_and_not_visible"),
        (IgnoresFencesOfSlices, "test_a_zombie_with_an_older_fence_of_a_slice_is_refused"),
        (ForgetsWhatIsCommitted, "test_committed_returns_the_outcomes"),
        (MixesInstances, "test_rows_of_a_namespace_are_counted_by_instance"),
        (SweepsAllNamespaces, "test_a_namespace_is_swept_and_deleted_under_its_own_epoch"),
        (DeletesTheNeighbour, "test_a_namespace_is_deleted_with_all_below_it_and_nothing_else"),
        (ReadsWhatIsDeleted, "test_a_deleted_row_is_not_resurrected_by_an_older_one_however_late"),
    )
}
