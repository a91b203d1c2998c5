"""Promote a generation: readers that name no generation get this one."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from instep.domain.events import GenerationPromoted
from instep.domain.instances import InstanceState
from instep.domain.refs import PartitionRef, generation_text
from instep.entities.aliases import late_aliases
from instep.entities.generations import build_hint, built
from instep.entities.ownership import vanished
from instep.entities.setup import EntitySetup
from instep.errors import Fenced, UserError
from instep.jobs.acquisition import Busy
from instep.jobs.lease_holder import LeaseHolder, lease_holder
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.leases import Lease
from instep.planning.context import Context


@dataclass(frozen=True, slots=True)
class Promotion:
    """The result of a promotion: readers of `ref` get `generation` now, and got `before`."""

    ref: PartitionRef
    generation: str
    before: str
    instance: str
    physical: str

    @property
    def changed(self) -> bool:
        """Whether another generation is served now."""
        return self.generation != self.before


def promote(
    setup: EntitySetup,
    generation: str,
    context: Context,
    *,
    allow_deletes: bool = False,
    allow_empty: bool = False,
    by: str = "",
) -> Promotion:
    """Promote a generation: move the alias, then record it in the ledger. `allow_deletes`: however many rows it lacks.
    `allow_empty`: even if its source is empty and all rows are gone.

    Raises `UserError` when the generation is not built or fails the checks; `Busy` while a job works on the partition.
    Idempotent: after a crash in between, a second call does the rest.
    """
    ledger = context.ledger
    checkpoint = built(ledger, setup.ref, generation)
    before = ledger.partitions.promoted(setup.ref) or ""
    if before != generation or setup.target.served(setup.alias) != checkpoint.physical:
        promotion = _Promotion(setup, generation, context, by)
        checkpoint = promotion.run(allow_deletes=allow_deletes, allow_empty=allow_empty)
    return Promotion(setup.ref, generation, before, checkpoint.instance, checkpoint.physical)


def finish_interrupted(setup: EntitySetup, context: Context, *, by: str = "") -> None:
    """Finish promotions interrupted between the alias update and the ledger write; or, of an index shared by
    partitions, between the ledger write and the alias update.
    """
    ledger = context.ledger
    checkpoints = ledger.checkpoints.of_partition(setup.ref)
    for each in checkpoints:
        if late_aliases(setup, each.generation, each.physical, ledger):
            with suppress(Busy):  # The worker that holds the lease checks this when it ends.
                _Promotion(setup, each.generation, context, by).serve_late()
    if len(checkpoints) < 2:
        return
    served, promoted = setup.target.served(setup.alias), ledger.partitions.promoted(setup.ref)
    moved = next((each.generation for each in checkpoints if each.physical == served), promoted)
    if moved is not None and moved != promoted:
        with suppress(Busy):  # Another process is doing it.
            _Promotion(setup, moved, context, by).run(moved=True)


class _Promotion:
    """One promotion, under the partition's lease, so that none of its generations is built at the same time."""

    def __init__(self, setup: EntitySetup, generation: str, context: Context, by: str) -> None:
        self._setup = setup
        self._generation = generation
        self._context = context
        self._by = by

    def run(self, *, moved: bool = False, allow_deletes: bool = False, allow_empty: bool = False) -> Checkpoint:
        """Check, move the alias and record it. `moved`: only record an earlier promotion that is still served."""
        target, alias = self._setup.target, self._setup.alias
        with self._holder() as holder:
            lease = holder.hold(self._setup.ref)
            checkpoint = built(self._context.ledger, self._setup.ref, self._generation)
            if moved and target.served(alias) != checkpoint.physical:
                return checkpoint
            if not moved:
                self._check(checkpoint, lease.epoch, allow_deletes=allow_deletes, allow_empty=allow_empty)
            holder.heartbeat.require(self._setup.ref)
            # Repeated for a moved alias too: its process may have died before readers saw it.
            target.promote(alias, checkpoint.physical, lease.epoch)
            if target.served(alias) == checkpoint.physical:
                self._record(lease)
            return checkpoint

    def serve_late(self) -> None:
        with self._holder() as holder:
            lease = holder.hold(self._setup.ref)
            ledger = self._context.ledger
            checkpoint = built(ledger, self._setup.ref, self._generation)
            holder.heartbeat.require(self._setup.ref)
            for alias in late_aliases(self._setup, self._generation, checkpoint.physical, ledger):
                self._setup.target.promote(alias, checkpoint.physical, lease.epoch)

    def _holder(self) -> AbstractContextManager[LeaseHolder]:
        configuration = {"promote": {str(self._setup.ref): self._generation}}
        return lease_holder(self._context, configuration, hint="Promote when that has ended.")

    def _check(self, checkpoint: Checkpoint, epoch: int, *, allow_deletes: bool, allow_empty: bool) -> None:
        """Raises `UserError` when the built index must not replace the served one."""
        setup, ledger = self._setup, self._context.ledger
        if not setup.target.exists(checkpoint.physical):
            raise vanished(setup, checkpoint.physical, ledger)
        promoted = ledger.partitions.promoted(setup.ref)
        if promoted is None or promoted == self._generation:
            return
        instance, served = ledger.instances.get(checkpoint.instance), ledger.checkpoints.get(setup.ref, promoted)
        problem = None
        if instance is not None and instance.state is InstanceState.TAINTED:
            problem = f"what is built of it is tainted{f': {instance.why}' if instance.why else ''}"
        elif served is not None:
            problem = setup.not_better(
                ledger, checkpoint, served, epoch=epoch, allow_deletes=allow_deletes, allow_empty=allow_empty
            )
        if problem:
            name = generation_text(setup.ref, self._generation)
            raise UserError(f"{name} is not promoted: {problem}", hint=build_hint(ledger, setup.ref, self._generation))

    def _record(self, lease: Lease) -> None:
        """Record the promotion in the ledger, unless the lease was lost: another process may have promoted another
        generation since.
        """
        ref, ledger = self._setup.ref, self._context.ledger
        if ledger.partitions.promoted(ref) == self._generation:
            return
        try:
            ledger.leases.record(lease, [GenerationPromoted(ref=str(ref), generation=self._generation, by=self._by)])
        except Fenced as error:
            what = f"{generation_text(ref, self._generation)}: it took so long to promote it that others took over"
            raise UserError(what, hint="See `instep status`, and promote it again.") from error
