"""Leases of keys of a pending queue: the transitions between reading and acknowledgement.

A key without a lease that never failed has no `KeyLease`. One that is leased, that waits for its next try, or that is
parked has one, and changes it by these rules only. Times are milliseconds of the ledger's own clock. Fences are of the
queue: they grow with every batch that is leased, so that no two leases of a key ever have the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import floor
from typing import Final

from instep.domain.storable import storable

#: How many keys are leased, acknowledged or failed by one call.
MAX_BATCH: Final = 50_000

#: After so many failed attempts a key is parked; and again after as many more, once a person has let it go on.
ATTEMPTS: Final = 12
FIRST_PAUSE: Final = 5 * 60_000
LONGEST_PAUSE: Final = 24 * 60 * 60_000

#: One key in so many of a batch may be one that failed before.
_RETRIES_ONE_IN: Final = 10

#: A state this far in the future dates from before the clock was set back: its age is unknown, so the key is due.
AHEAD: Final = 60_000

MAX_ERROR: Final = 2_000
RAN_OUT: Final = "its lease ran out"


class KeyLeaseState(StrEnum):
    LEASED = "LEASED"
    WAITING = "WAITING"
    PARKED = "PARKED"


#: Where a key can go from each state; None is that it has no hold.
KEY_LEASE_TRANSITIONS: Final[dict[KeyLeaseState | None, frozenset[KeyLeaseState | None]]] = {
    None: frozenset({KeyLeaseState.LEASED, KeyLeaseState.WAITING}),
    KeyLeaseState.LEASED: frozenset({None, KeyLeaseState.LEASED, KeyLeaseState.WAITING, KeyLeaseState.PARKED}),
    KeyLeaseState.WAITING: frozenset({KeyLeaseState.LEASED, KeyLeaseState.WAITING, KeyLeaseState.PARKED}),
    KeyLeaseState.PARKED: frozenset({KeyLeaseState.WAITING}),
}


class Refusal(StrEnum):
    """The reason why nothing was changed about a key."""

    LEASED = "another consumer has leased it"
    OVERTAKEN = "its lease ran out, and it was given to others since"
    COUNTED = "it has failed already, and is not due"
    IMPOSSIBLE = "the queue has no such keys: they are of another type, or out of its range"
    UNKNOWN = "it is not leased: it was acknowledged, or never given out"
    UNGIVEN = "it was not given out with this fence, or was acknowledged since"


@dataclass(frozen=True, slots=True)
class KeyLease:
    """`due`: when others may have it: at the end of its lease, or of its pause; None while it is parked. `since`: when
    it came into its state. `attempts` counts those that failed, a lease that ran out among them; it never shrinks.
    """

    fence: int
    holder: str | None
    due: int | None
    attempts: int
    since: int
    error: str | None = None

    @property
    def state(self) -> KeyLeaseState:
        if self.holder is not None:
            return KeyLeaseState.LEASED
        return KeyLeaseState.PARKED if self.due is None else KeyLeaseState.WAITING

    def is_due(self, now: int) -> bool:
        return self.due is not None and (self.due <= now or self.since > now + AHEAD)


@dataclass(frozen=True, slots=True)
class Terms:
    """Under what a batch of keys is leased, and when."""

    fence: int
    holder: str
    now: int
    until: int


def retry_share(limit: int, draw: float) -> int:
    """The number of a batch that may be retries: a tenth. What is left of ten is decided by `draw`, any number from 0
    to 1: every tenth batch of a single key is a retry, so that neither fresh keys nor retries ever starve.
    """
    return floor(limit / _RETRIES_ONE_IN + draw)


def pause(attempts: int) -> int:
    """After so many failed attempts."""
    return min(FIRST_PAUSE << (attempts - 1) % ATTEMPTS, LONGEST_PAUSE)


def lease(hold: KeyLease | None, terms: Terms, *, retries: bool) -> KeyLease | None:
    """The key as one that has never failed; or, with `retries`, one whose pause is over or whose lease ran out, which
    may park it. None when it cannot be leased.

    A lease may run out once without making the key a retry: a consumer that died says little about its keys.
    """
    if hold is None:
        return KeyLease(terms.fence, terms.holder, terms.until, 0, terms.now)
    if not hold.is_due(terms.now) or (hold.attempts and not retries):
        return None
    return _taken(hold, terms)


def extend(hold: KeyLease | None, fence: int, until: int) -> KeyLease | Refusal:
    """Extend a lease, never shorten it. Allowed after its end too, unless the key was given to another consumer."""
    if hold is None or hold.holder is None or hold.fence != fence:
        return _refusal(hold, fence)
    return replace(hold, due=max(until, hold.due or 0))


def fail(hold: KeyLease | None, fence: int | None, error: str, now: int) -> KeyLease | Refusal:
    """`fence` is None for a consumer without leases: its report counts for keys that are not leased."""
    if fence is not None and (hold is None or hold.holder is None or hold.fence != fence):
        return _refusal(hold, fence)
    if hold is None:
        return _spent(KeyLease(0, None, None, 0, now), error, now)
    if fence is None and not hold.is_due(now):
        return Refusal.COUNTED if hold.holder is None else Refusal.LEASED
    return _spent(hold, error, now)


def release(hold: KeyLease | None, fence: int, now: int) -> KeyLease | Refusal | None:
    """Back, without a spent attempt. None: the key has no hold any more."""
    if hold is None or hold.holder is None or hold.fence != fence:
        return _refusal(hold, fence)
    return replace(hold, holder=None, due=now, since=now) if hold.attempts else None


def forget(hold: KeyLease | None, fence: int) -> Refusal | None:
    """None: the key has no hold any more. Only a holder may do that: a hold at rest stays unchanged."""
    if hold is None or hold.holder is None or hold.fence != fence:
        return _refusal(hold, fence)
    return None


def unpark(hold: KeyLease, now: int) -> KeyLease:
    """Unpark a key: it gets as many attempts again."""
    return replace(hold, due=now, since=now) if hold.state is KeyLeaseState.PARKED else hold


def _taken(hold: KeyLease, terms: Terms) -> KeyLease:
    if hold.state is KeyLeaseState.LEASED:
        hold = _spent(hold, RAN_OUT, terms.now)
        if hold.state is KeyLeaseState.PARKED:
            return hold
    return replace(hold, fence=terms.fence, holder=terms.holder, due=terms.until, since=terms.now)


def _spent(hold: KeyLease, error: str, now: int) -> KeyLease:
    attempts = hold.attempts + 1
    due = None if attempts % ATTEMPTS == 0 else now + pause(attempts)
    return KeyLease(hold.fence, None, due, attempts, now, storable(error[:MAX_ERROR]))


def _refusal(hold: KeyLease | None, fence: int) -> Refusal:
    if hold is None:
        return Refusal.UNKNOWN
    if hold.fence == fence:
        return Refusal.COUNTED
    return Refusal.OVERTAKEN if fence < hold.fence else Refusal.UNGIVEN  # Fences grow.
