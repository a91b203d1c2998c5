"""Keep a worker's heartbeat and its jobs' leases alive during long Spark stages, and report when that fails."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Literal

from instep.domain.clock import Clock, Timing
from instep.domain.refs import PartitionRef
from instep.errors import Fenced, InstepError
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.planning.context import Context


class Heartbeat:
    """The slices and leases of a worker, and until when they are certain. `beat` is called at every heartbeat from a
    background thread; the other methods by the worker.

    A heartbeat and a lease are trusted until the *start* of the last successful renewal + their time to live - margin,
    because the reply may have been slow.
    """

    def __init__(self, ledger: Ledger, worker_id: str, clock: Clock, timing: Timing) -> None:
        self._ledger = ledger
        self._worker_id = worker_id
        self._clock = clock
        self._timing = timing
        self._lock = threading.Lock()
        self._running: set[str] = set()
        self._leases: dict[PartitionRef, Lease] = {}
        self._renewed: dict[PartitionRef, float] = {}
        self._beaten = clock.monotonic()
        self.lost = False

    def keep(self, lease: Lease, *, since: float) -> None:
        """Renew this lease from now on; the call that got or renewed it began at `since` (monotonic seconds)."""
        with self._lock:
            self._leases[lease.ref] = lease
            self._renewed[lease.ref] = since

    def drop(self, ref: PartitionRef) -> None:
        with self._lock:
            self._leases.pop(ref, None)
            self._renewed.pop(ref, None)

    def begin(self, slice_ids: Iterable[str]) -> None:
        """Mark these slices as running."""
        with self._lock:
            self._running.update(slice_ids)

    def end(self, slice_ids: Iterable[str]) -> None:
        with self._lock:
            self._running.difference_update(slice_ids)

    def require(self, ref: PartitionRef) -> None:
        """Raises `Fenced` unless worker and lease are certain to stay valid for the margin."""
        now = self._clock.monotonic()
        with self._lock:
            renewed = self._renewed.get(ref)
        if self.lost or now - self._beaten > self._trusted(self._timing.stale):
            raise Fenced(f"worker {self._worker_id[:8]} could not send its heartbeat; others may have its slices now")
        if renewed is None or now - renewed > self._trusted(self._timing.lease):
            raise Fenced(f"the lease on {ref} could not be kept; another job may hold it now")

    def beat(self) -> bool:
        """Send one heartbeat, and renew the leases that are due. Outages are tolerated until the margin. False when the
        worker is no longer registered. An unexpected error is raised after all renewals were tried.
        """
        started = self._clock.monotonic()
        unexpected: Exception | None = None
        with self._lock:
            running, leases = tuple(self._running), list(self._leases.values())
        try:
            self._ledger.workers.heartbeat(self._worker_id, running)
            self._beaten = started
        except Fenced:
            self.lost = True
            return False
        except InstepError:
            return True
        except Exception as error:
            unexpected = error
        for lease in leases:
            try:
                self._renew(lease)
            except Exception as error:
                unexpected = unexpected or error
        if unexpected is not None:
            raise unexpected
        return True

    def _renew(self, lease: Lease) -> None:
        started = self._clock.monotonic()
        with self._lock:
            due = started - self._renewed.get(lease.ref, started) >= self._timing.renew / 1000
        if not due:
            return
        try:
            renewed = self._ledger.leases.renew(lease)
        except Fenced:
            self._replace(lease, None, started)
        except InstepError:
            return
        else:
            self._replace(lease, renewed, started)

    def _replace(self, lease: Lease, renewed: Lease | None, started: float) -> None:
        """Store the renewal, unless the worker has another lease by now."""
        with self._lock:
            if self._leases.get(lease.ref) != lease:
                return
            if renewed is None:
                del self._leases[lease.ref], self._renewed[lease.ref]
            else:
                self._leases[lease.ref], self._renewed[lease.ref] = renewed, started

    def _trusted(self, milliseconds: int) -> float:
        return (milliseconds - self._timing.margin) / 1000


Kind = Literal["run", "worker"]


class Registration:
    """One registration: heartbeats go to the ledger in the background, and a lock on this host proves that the process
    is alive.

    A worker that others have declared dead registers again, under a new id.
    """

    def __init__(self, context: Context, kind: Kind) -> None:
        self._context = context
        self.id = context.ids.new()
        self.heartbeat = Heartbeat(context.ledger, self.id, context.clock, context.timing)
        context.own_workers.add(self.id)
        self._proof, self._beats = ExitStack(), ExitStack()
        # First: one that is registered and has no proof would count as alive until its silence is noticed.
        self._proof.callback(context.liveness.begin(self.id))
        try:
            context.ledger.workers.register(self.id, kind=kind, host=socket.gethostname(), pid=os.getpid())
        except BaseException:
            self._proof.close()  # If it is registered after all, it is proved dead.
            raise
        self._beats.callback(
            context.background.every(context.timing.heartbeat / 1000, self.heartbeat.beat, f"heartbeat-{self.id[:8]}")
        )

    def silence(self) -> None:
        """Stop the heartbeats and renewals; the proof of life stays."""
        self._beats.close()

    def retire(self) -> None:
        """Remove the worker from the ledger, once it holds nothing any more."""
        self._context.ledger.workers.retire(self.id)
        self._context.liveness.forget(self.id)

    def evict(self) -> None:
        """Clean up after other workers have removed it from the ledger."""
        self.silence()
        self._context.liveness.forget(self.id)
        self.end()

    def end(self) -> None:
        """End the proof of life: the worker counts as dead, unless it was removed. May be called twice."""
        self.silence()
        self._proof.close()
        self._context.own_workers.discard(self.id)
