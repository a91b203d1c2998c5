"""Namespaces: which there may be beside each other, and how one is deleted, rows included."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from instep.bus.bus import Bus
from instep.domain.refs import PartitionRef, RefError, Scope
from instep.domain.status import StatusKey, StatusKeyTextError
from instep.errors import UserError
from instep.jobs.acquisition import Busy, held_text
from instep.jobs.recovery import recover
from instep.jobs.worker import Worker
from instep.ledger.ledger import Holder, Lease, Ledger
from instep.planning.context import Context
from instep.targets.table_target import TableTarget


def namespace_of(text: str) -> Scope:
    """Raises `UserError` for what is not the traversal path of a namespace."""
    try:
        scope = Scope.parse(text)
    except RefError as error:
        raise UserError(str(error), hint="Name a namespace by its traversal path, such as 42/9970.") from error
    if scope.is_global:
        raise UserError("global is not a namespace", hint="Name one by its traversal path, such as 42/9970.")
    return scope


def namespaces_of(texts: Iterable[str]) -> list[Scope]:
    """Each once, in the order given. Raises `UserError` when one lies in another: their rows would be the same."""
    scopes = list(dict.fromkeys(map(namespace_of, texts)))
    by_path = sorted(scopes)
    for outer, inner in pairwise(by_path):
        if inner.path.startswith(outer.path):
            raise UserError(f"namespace {inner} lies in namespace {outer}", hint="Name either, not both.")
    return scopes


# Deletion.


@dataclass(frozen=True, slots=True)
class Deletion:
    """What the deletion of a namespace removes: partitions that the ledger knows of, status keys, dead letters. (And
    requests that wait.)
    """

    scope: Scope
    partitions: Sequence[PartitionRef]
    keys: Sequence[str]
    letters: Sequence[PartitionRef]

    @property
    def empty(self) -> bool:
        return not (self.partitions or self.keys or self.letters)

    def as_dict(self) -> dict[str, Any]:
        return {
            "namespace": str(self.scope),
            "partitions": [str(each) for each in self.partitions],
            "status_keys": list(self.keys),
            "dead_letters": [str(each) for each in self.letters],
        }


def deletion_of(scope: Scope, entities: Collection[str], ledger: Ledger, bus: Bus) -> Deletion:
    """What there is to delete of a namespace, and of those in it."""
    refs = {each.ref for entity in entities for each in ledger.entity_checkpoints(entity)}
    keys = [each.key for each in bus.status.under(str(StatusKey(scope, None)))]
    # What was begun and never served has a status key at most.
    refs |= {ref for ref in map(_told, keys) if ref is not None and ref.entity in entities}
    letters = [each.ref for each in bus.dead_letters() if each.ref.scope.within(scope)]
    return Deletion(scope, sorted(ref for ref in refs if ref.scope.within(scope)), keys, letters)


def delete_namespace(
    scope: Scope, targets: Mapping[str, TableTarget], bus: Bus, context: Context, *, by: str = ""
) -> Deletion:
    """Forget what is asked of a namespace, and of those in it; then delete its rows, of each entity; then what the
    ledger knows of it; then what was said of it. After a crash at any step the same call does the rest. Raises `Busy`,
    and deletes nothing, while a job works on one of its partitions.
    """
    found = deletion_of(scope, targets, context.ledger, bus)
    partitions = sorted({*found.partitions, *(PartitionRef(entity, scope) for entity in targets)})
    _Deletion(scope, targets, bus, context, by).run(partitions)
    for key in found.keys:
        bus.status.delete(key)
    return found


def _told(key: str) -> PartitionRef | None:
    try:
        parsed = StatusKey.parse(key)
    except StatusKeyTextError:
        return None
    return None if parsed.entity is None else PartitionRef(parsed.entity, parsed.scope)


class _Deletion:
    """Under the leases of all partitions: nobody builds any of them meanwhile."""

    def __init__(self, scope: Scope, targets: Mapping[str, TableTarget], bus: Bus, context: Context, by: str) -> None:
        self._scope = scope
        self._targets = targets
        self._bus = bus
        self._context = context
        self._by = by

    def run(self, known: Sequence[PartitionRef]) -> None:
        ledger, job_id = self._context.ledger, self._context.ids.new()
        worker = Worker({}, self._context, "run")
        try:
            recover(self._context)  # Who has died with a lease keeps it from nobody.
            ledger.begin_job(job_id, worker.id, {"delete": str(self._scope)})
            asked: list[PartitionRef] = []
            try:
                leases = [self._lease(ref, job_id, worker) for ref in known]
                # A handler without a lease finds out when it gets one (see `Acquisition`); one that has it works on it.
                asked = [ref for ref in self._bus.forget(self._scope) if ref.entity in self._targets]
                leases += [self._lease(ref, job_id, worker) for ref in asked if ref not in known]
                for lease in leases:
                    self._delete(lease, worker)
            finally:
                for ref in (*known, *asked):
                    worker.heartbeat.drop(ref)
                ledger.discard_job(job_id)
        finally:
            worker.end()

    def _lease(self, ref: PartitionRef, job_id: str, worker: Worker) -> Lease:
        since = self._context.clock.monotonic()
        lease = self._context.ledger.acquire_lease(ref, job_id, worker.id)
        if isinstance(lease, Holder):
            raise Busy(held_text(lease), hint="Delete the namespace when that has ended, or stop the job.")
        worker.heartbeat.keep(lease, since=since)
        return lease

    def _delete(self, lease: Lease, worker: Worker) -> None:
        """Rows first: as long as the ledger knows of the partition, the next try finds what is left of them."""
        ref, ledger = lease.ref, self._context.ledger
        target = self._targets[ref.entity]
        self._context.progress.say(ref.label, "its rows are deleted")
        for physical in self._indexes(ref.entity, target):
            worker.heartbeat.require(ref)
            target.delete_scope(physical, ref.scope.path, epoch=lease.epoch, scope=ref.scope.path)
        worker.heartbeat.require(ref)
        ledger.drop_partition(lease, by=self._by)
        worker.heartbeat.drop(ref)

    def _indexes(self, entity: str, target: TableTarget) -> list[str]:
        """Those that are needed, that which is served, and what was left behind."""
        served = target.served(entity)
        known = {*self._context.ledger.indexes(entity), *target.leftovers(entity, idle_seconds=0)}
        there = (each for each in known | ({served} if served else set()) if target.exists(each))
        return sorted(each for each in there if target.mine(each))
