"""Ports for time, ids and background work; a simulator brings its own. Timeouts and intervals.

Timeouts and intervals of leases, heartbeats and recovery. All are milliseconds.

The seed's constants (distributed reindexing, "Timeouts and Limits"). They are passed as a value, so that tests with
real processes can be faster; only tests have a reason to change them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """Wall-clock milliseconds, monotonic seconds, and sleeping: all three can be virtual."""

    def now(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""

    def monotonic(self) -> float:
        """Seconds; only differences mean anything."""

    def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    def new(self) -> str:
        """A new unique id (UUID text)."""


class Background(Protocol):
    """Runs a task beside the caller, repeatedly or once: in a thread, or in a simulator's turn."""

    def every(self, seconds: float, task: Callable[[], bool], name: str) -> Callable[[], None]:
        """Call `task` every `seconds` until it returns False. The returned function stops it and waits for a call in
        progress. An error in a call does not end it.
        """

    def beside(self, task: Callable[[], T], name: str) -> Callable[[], T]:
        """Call `task` once. The returned function waits for its end, and returns or raises what it did; it may be
        called again.
        """


@dataclass(frozen=True, slots=True)
class Timing:
    """`lease`: how long a lease holds unless renewed. `renew`, `heartbeat`: interval of renewals and heartbeats.
    `stale`: silence after which a worker's slices go to others. `margin`: how long before its lease or heartbeat ends a
    worker stops writing. `sweep`: interval of recovery by every worker. `grace`: how long a stopping job waits for the
    slices in work. `orphan`: how long a job without workers waits for one that can resume it, before it may be failed.
    `stagger`: the time over which the second half of a new job's slices becomes claimable, if other processes work on
    the ledger too. `poll`: how often an idle worker looks for work. `rest`, `longest_rest`: the first and the longest
    pause before a worker tries a failed job again by itself.
    """

    lease: int = 5 * 60_000
    renew: int = 60_000
    heartbeat: int = 30_000
    stale: int = 5 * 60_000
    margin: int = 15_000
    sweep: int = 2 * 60_000
    grace: int = 30_000
    orphan: int = 10 * 60_000
    stagger: int = 5_000
    poll: int = 500
    rest: int = 30_000
    longest_rest: int = 60 * 60_000

    def lasting(self, lease: int) -> Timing:
        """The same with a lease of so many milliseconds, which is also the silence after which a worker counts as dead.
        Heartbeats, renewals and sweeps are more frequent with a shorter one, and as frequent with a longer one: servers
        with different leases on one ledger must not take each other for dead.
        """
        return replace(
            self,
            lease=lease,
            stale=lease,
            renew=min(self.renew, lease // 5),
            heartbeat=min(self.heartbeat, lease // 10),
            margin=min(self.margin, lease // 20),
            sweep=min(self.sweep, lease * 2 // 5),
        )

    def faster(self, factor: float) -> Timing:
        """The same proportions, `factor` times as fast."""
        return Timing(**{each.name: max(1, round(getattr(self, each.name) / factor)) for each in fields(self)})


TIMING = Timing()

#: Bounds of a declared lease. The shortest is twice what may pass between two renewals, whatever lease a server has.
SHORTEST_LEASE, LONGEST_LEASE = 2 * 60_000, 60 * 60_000
