"""Keeps a worker's heartbeat and lease alive while long Spark stages run, or says that it could not."""

from __future__ import annotations

import threading

from instep.domain.clock import Clock
from instep.errors import Fenced, InstepError
from instep.ledger.port import HEARTBEAT_MS, LEASE_RENEW_MS, LEASE_TTL_MS, Lease, Ledger

#: A worker stops writing this long before its lease could expire. The lease is trusted until the
#: *start* of the last renewal that succeeded + TTL - margin: the reply may have been slow.
MARGIN_SECONDS = 15.0


class Keeper:
    """A thread beside one job part. Use as a context manager."""

    def __init__(self, ledger: Ledger, lease: Lease, clock: Clock) -> None:
        self._ledger = ledger
        self._lease = lease
        self._clock = clock
        self._renewed = clock.monotonic()
        self._lost = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"keeper-{lease.ref}", daemon=True)

    def __enter__(self) -> Keeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def require(self) -> None:
        """Raises `Fenced` unless the lease can be proved to be ours for a while yet."""
        age = self._clock.monotonic() - self._renewed
        if self._lost or age > LEASE_TTL_MS / 1000 - MARGIN_SECONDS:
            raise Fenced(f"the lease on {self._lease.ref} could not be kept; another worker may hold it now")

    def beat(self) -> None:
        """One heartbeat, and a renewal when it is time. Outages are waited out until the margin."""
        started = self._clock.monotonic()
        try:
            self._ledger.heartbeat(self._lease.worker_id)
            if started - self._renewed >= LEASE_RENEW_MS / 1000:
                self._lease = self._ledger.renew_lease(self._lease)
                self._renewed = started
        except Fenced:
            self._lost = True
        except InstepError:
            return

    def _keep(self) -> None:
        while not self._end.wait(HEARTBEAT_MS / 1000) and not self._lost:
            self.beat()
