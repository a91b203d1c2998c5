"""Recover from dead workers: give their slices and parts to live ones. Every worker does this."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from instep.domain.jobs import OpenPart
from instep.domain.refs import PartitionRef
from instep.domain.texts import amount
from instep.entities.setup import EntitySetup
from instep.errors import InstepError
from instep.jobs.finish import give_up
from instep.ledger.leases import Lease
from instep.planning.context import Context


def recover(context: Context) -> None:
    """Free the slices of workers proved dead on this host at once, then those of workers silent for too long."""
    release_dead_processes(context)
    swept = context.ledger.sweep()
    for worker_id in swept.workers:
        context.liveness.forget(worker_id)
        context.progress.say("workers", f"worker {worker_id[:8]} has been silent for too long; its slices are free")
    for job_id, state in swept.jobs.items():
        context.progress.say("jobs", f"job {job_id[:8]} ended: {state}")
    _forget_unregistered(context)


def release_dead_processes(context: Context) -> None:
    """Free the slices and leases of workers proved dead on this host. Cheap: idle workers do it at each look."""
    ledger, liveness, here = context.ledger, context.liveness, socket.gethostname()
    for worker in ledger.workers.all():
        # Only on this host: on a shared file system, a lock held elsewhere may not be visible.
        if worker.host == here and liveness.proved_dead(worker.id):
            slices = ledger.workers.evict(worker.id)
            liveness.forget(worker.id)
            context.progress.say("workers", f"worker {worker.id[:8]} is dead; {amount(slices, 'slice')} taken from it")


def _forget_unregistered(context: Context) -> None:
    """Clear away proofs of workers that the ledger does not know (any more): others have evicted them by their silence.
    Found dead before the ledger is asked, none of them registers after that.
    """
    if dead := context.liveness.all_dead():
        registered = {each.id for each in context.ledger.workers.all()}
        for worker_id in dead:
            if worker_id not in registered:
                context.liveness.forget(worker_id)


def fail_orphans(
    parts: list[OpenPart], setups: Mapping[PartitionRef, EntitySetup], context: Context, worker_id: str
) -> None:
    """Fail parts that no worker can resume. A part without a lease is resumed by the first worker that can; one whose
    declaration has changed fits no worker, and fails after the orphan time. One that has stopped waits for a run.
    """
    ledger = context.ledger
    for each in parts:
        if each.error is not None:
            continue
        ref = each.part.ref
        try:
            why = setups[ref].misfit(each.part)
        except InstepError:
            continue  # Its transform cannot be imported now, say: whether it fits is known once it can.
        job = ledger.jobs.get(each.job_id) if why and not each.held else None
        if why is None or job is None or ledger.now() - job.updated_at < context.timing.orphan:
            continue
        lease = ledger.leases.acquire(ref, each.job_id, worker_id)
        if isinstance(lease, Lease):
            part = ledger.parts.adopt(lease)
            give_up(setups[ref], part, ledger, job_id=each.job_id, worker_id=worker_id, why=f"orphaned, and {why}")
            context.progress.say(ref.label, f"job {each.job_id[:8]} was given up: {why}")
