"""Hold leases of partitions for a job that has no slices of its own: a promotion, an adoption, a deletion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from instep.domain.refs import PartitionRef
from instep.domain.texts import duration_text
from instep.errors import Conflict, Transient, Unknown
from instep.jobs.acquisition import Busy, held_text
from instep.jobs.heartbeat import Registration
from instep.jobs.recovery import recover
from instep.ledger.leases import Holder, Lease
from instep.planning.context import Context


class LeaseHolder:
    """A registered process that holds leases for one job. `hint`: what to do when another job holds one of them."""

    def __init__(self, context: Context, configuration: Mapping[str, Any], hint: str) -> None:
        self._context = context
        self._hint = hint
        self._registration = Registration(context, "run")
        self._held: list[PartitionRef] = []
        self.heartbeat = self._registration.heartbeat
        self.worker_id = self._registration.id
        self.job_id = context.ids.new()
        self._configuration = configuration

    def begin(self) -> None:
        """Begin the job, after the leases of dead workers were freed."""
        recover(self._context)
        self._context.ledger.jobs.begin(self.job_id, self.worker_id, self._configuration)

    def hold(self, ref: PartitionRef) -> Lease:
        """Acquire the lease and renew it from now on. Raises `Busy` when another job holds it."""
        since = self._context.clock.monotonic()
        lease = self._context.ledger.leases.acquire(ref, self.job_id, self.worker_id)
        if isinstance(lease, Holder):
            left = max(1_000, lease.expires_at - self._context.ledger.now()) // 1_000 * 1_000
            gone = f"If that process is gone, it is free in {duration_text(left)} at the latest."
            raise Busy(held_text(lease), hint=f"{self._hint} {gone}")
        self._held.append(ref)
        self.heartbeat.keep(lease, since=since)
        return lease

    def give_back(self) -> None:
        """Stop the renewals, and discard the job if it was not stored."""
        for ref in self._held:
            self.heartbeat.drop(ref)
        with suppress(Conflict):  # The job was stored and has ended.
            self._context.ledger.jobs.discard(self.job_id)

    def end(self) -> None:
        """Remove the process from the ledger."""
        self._registration.silence()
        try:
            with suppress(Transient, Unknown):  # Without a heartbeat others find it out.
                self._registration.retire()
        finally:
            self._registration.end()


@contextmanager
def lease_holder(context: Context, configuration: Mapping[str, Any], *, hint: str) -> Iterator[LeaseHolder]:
    """A holder without leases, whose job has begun. At the end all that it holds is given back."""
    holder = LeaseHolder(context, configuration, hint)
    try:
        holder.begin()
        try:
            yield holder
        finally:
            holder.give_back()
    finally:
        holder.end()
