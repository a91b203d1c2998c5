"""Validate namespaces, and delete a namespace with its rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from instep.bus.bus import Bus
from instep.domain.events import WantCanceled
from instep.domain.refs import PartitionRef, RefError, Scope, nested
from instep.domain.status import StatusKey, StatusKeyTextError
from instep.domain.texts import names_in
from instep.domain.wants import Want
from instep.errors import Conflict, UserError
from instep.jobs.heartbeat import Heartbeat
from instep.jobs.lease_holder import lease_holder
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.planning.context import Context
from instep.targets.table_target import TableTarget


def namespace_of(text: str) -> Scope:
    """Parse the traversal path of a namespace. Raises `UserError` if it is none."""
    try:
        scope = Scope.parse(text)
    except RefError as error:
        raise UserError(str(error), hint="Name a namespace by its traversal path, such as 42/9970.") from error
    if scope.is_global:
        raise UserError("global is not a namespace", hint="Name one by its traversal path, such as 42/9970.")
    return scope


def namespaces_of(texts: Iterable[str]) -> list[Scope]:
    """Parse paths, each once, in the order given. Raises `UserError` if one contains another: rows would be shared."""
    scopes = list(dict.fromkeys(map(namespace_of, names_in(texts))))
    if found := nested(scopes):
        outer, inner = found
        raise UserError(f"namespace {inner} lies in namespace {outer}", hint="Name either, not both.")
    return scopes


# Deletion.


@dataclass(frozen=True, slots=True)
class Deletion:
    """The content of a namespace to delete: partitions in the ledger, status keys, open wants, dead letters."""

    scope: Scope
    partitions: Sequence[PartitionRef]
    keys: Sequence[str]
    wanted: Sequence[PartitionRef]
    letters: Sequence[PartitionRef]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to remove."""
        return not (self.partitions or self.keys or self.wanted or self.letters)


def deletion_of(scope: Scope, entities: Collection[str], ledger: Ledger, bus: Bus) -> Deletion:
    """List what the deletion of a namespace, with those inside it, removes."""
    refs = {each.ref for entity in entities for each in ledger.checkpoints.of_entity(entity)}
    keys = [each.key for each in bus.status.under(str(StatusKey(scope, None)))]
    # A partition that was started and never served may have only a status key.
    refs |= {ref for ref in map(_told, keys) if ref is not None and ref.entity in entities}
    wanted = [ref for ref in ledger.wants.open_refs() if ref.scope.within(scope)]
    letters = {ref for want in ledger.wants.given_up() for ref in _within(want, scope)}
    return Deletion(scope, sorted(ref for ref in refs if ref.scope.within(scope)), keys, wanted, sorted(letters))


def delete_namespace(
    scope: Scope, targets: Mapping[str, TableTarget], bus: Bus, context: Context, *, by: str = ""
) -> Deletion:
    """Delete the messages and wants for a namespace and those inside it; then the rows of each entity; then the
    ledger's records; then status keys and dead letters. After a crash at any step the same call does the rest. Raises
    `Busy`, and deletes nothing, while a job works on one of its partitions.
    """
    found = deletion_of(scope, targets, context.ledger, bus)
    partitions = sorted({*found.partitions, *(PartitionRef(entity, scope) for entity in targets)})
    _Deletion(scope, targets, bus, context, by).run(partitions)
    for key in found.keys:
        bus.status.delete(key)
    letters = [want.id for want in context.ledger.wants.given_up() if _within(want, scope)]
    context.ledger.events.collect([], letters)
    return found


def _within(want: Want, scope: Scope) -> list[PartitionRef]:
    return [ref for ref in map(PartitionRef.parse, want.refs) if ref.scope.within(scope)]


def _told(key: str) -> PartitionRef | None:
    try:
        parsed = StatusKey.parse(key)
    except StatusKeyTextError:
        return None
    return None if parsed.entity is None else PartitionRef(parsed.entity, parsed.scope)


class _Deletion:
    """A deletion that holds the leases of all its partitions, so that none is built at the same time."""

    def __init__(self, scope: Scope, targets: Mapping[str, TableTarget], bus: Bus, context: Context, by: str) -> None:
        self._scope = scope
        self._targets = targets
        self._bus = bus
        self._context = context
        self._by = by

    def run(self, known: Sequence[PartitionRef]) -> None:
        hint = "Delete the namespace when that has ended, or stop the job."
        with lease_holder(self._context, {"delete": str(self._scope)}, hint=hint) as holder:
            leases = [holder.hold(ref) for ref in known]
            # Messages before wants: one taken before that is canceled by the worker that stores it (see `Messages`). A
            # worker that plans for a want notices when it gets the lease (see `Acquisition`); one with a lease blocks
            # this.
            self._bus.purge(self._scope)
            asked = [ref for ref in self._cancel_wants() if ref.entity in self._targets]
            leases += [holder.hold(ref) for ref in asked if ref not in known]
            for lease in leases:
                self._delete(lease, holder.heartbeat)

    def _cancel_wants(self) -> list[PartitionRef]:
        """Cancel the open wants of the namespace. Returns the partitions that were wanted."""
        wants, why = self._context.ledger.wants, f"namespace {self._scope} was deleted"
        refs = [ref for ref in wants.open_refs() if ref.scope.within(self._scope)]
        for ref in refs:
            while found := wants.newest(ref=ref, open_only=True):
                for want in found:
                    with suppress(Conflict):  # It has just ended.
                        self._context.ledger.events.append([WantCanceled(want=want.id, by=self._by, why=why)])
        return refs

    def _delete(self, lease: Lease, heartbeat: Heartbeat) -> None:
        """Delete rows first: as long as the ledger knows the partition, a retry finds the rows that are left."""
        ref, ledger = lease.ref, self._context.ledger
        target = self._targets[ref.entity]
        self._context.progress.say(ref.label, "its rows are deleted")
        for physical in self._indexes(ref.entity, target):
            heartbeat.require(ref)
            target.within(ref.scope.path).delete_scope(physical, ref.scope.path, epoch=lease.epoch)
        heartbeat.require(ref)
        ledger.partitions.drop(lease, by=self._by)
        heartbeat.drop(ref)

    def _indexes(self, entity: str, target: TableTarget) -> list[str]:
        """Indexes in use, the served one, and leftovers."""
        served = target.served(entity)
        known = {*self._context.ledger.partitions.indexes(entity), *target.leftovers(entity, idle_seconds=0)}
        there = (each for each in known | ({served} if served else set()) if target.exists(each))
        return sorted(each for each in there if target.mine(each))
