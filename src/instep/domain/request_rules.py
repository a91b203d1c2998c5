"""States and transitions of the requests of one handler in one scope.

Every bus keeps one `Slot` for each of these, and changes it by these functions only. Buses differ only in how they
store it (a row, or a key whose revision is compared). Times are milliseconds by the bus's own clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from instep.domain.refs import is_entity_name
from instep.domain.storable import storable
from instep.errors import Conflict, Fenced

MAX_REASON: Final = 2_000
_HOUR: Final = 3_600_000

#: Error of a dead delivery whose worker never reported.
EXHAUSTED: Final = "its worker did not answer for the last of {attempts} attempts"


@dataclass(frozen=True, slots=True)
class Policy:
    """Retry policy of requests. A worker that is silent for `ack_wait` is taken for dead.

    After the n-th attempt the n-th pause of `backoff` is made, then always the last one. At most `limit` deliveries of
    all consumers in one `group`, on all servers, are in work at once.
    """

    max_attempts: int = 5
    backoff: tuple[int, ...] = (10_000, 60_000, 300_000)
    ack_wait: int = 5 * 60_000
    group: str = ""
    limit: int = 0

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or self.ack_wait < 1 or not self.backoff or min(self.backoff) < 0:
            raise ValueError("a policy needs an attempt, an ack wait and a back-off")
        if bool(self.group) != (self.limit > 0) or (self.group and not is_entity_name(self.group)):
            raise ValueError("a group has a name like that of an entity, and a limit of at least 1")

    @property
    def longest(self) -> int:
        """The longest time that a request waits, or is in work without a sign of life."""
        return max(_HOUR, self.ack_wait, *self.backoff)

    def is_due(self, due: int, now: int) -> bool:
        """Now; or by a clock that was set back since."""
        return not now < due <= now + self.longest

    def pause(self, attempt: int) -> int:
        return self.backoff[min(attempt, len(self.backoff)) - 1]


@dataclass(frozen=True, slots=True)
class Buried:
    """A request that was given up. A later success in the same scope covers it."""

    watermark: int
    attempts: int
    reason: str
    at: int


@dataclass(frozen=True, slots=True)
class Slot:
    """`seen`: newest requested watermark. `done`: newest acknowledged one. `waiting`, `working`: the watermarks that
    wait and are in work, None for none. `due`: when the one in work is given up, else when the waiting one may be
    taken. `last`: the attempt in work is the last one. `fence` grows with every attempt. `trace` is that of the last
    request, as `telemetry.context` has it: the newest is always taken.
    """

    seen: int = -1
    done: int = -1
    waiting: int | None = None
    working: int | None = None
    attempts: int = 0
    last: bool = False
    fence: int = 0
    due: int = 0
    buried: Buried | None = None
    trace: str = ""

    @property
    def idle(self) -> bool:
        return self.waiting is None and self.working is None


def request(slot: Slot, watermark: int, now: int, trace: str = "") -> Slot:
    """Add a request. It replaces an older waiting one, and keeps its pause and attempts: these belong to the scope."""
    if watermark <= slot.seen:
        return slot
    if slot.idle:
        return replace(slot, seen=watermark, waiting=watermark, attempts=0, due=now, trace=trace)
    return replace(slot, seen=watermark, waiting=watermark, trace=trace)


def reconcile(slot: Slot, now: int) -> Slot:
    """Bury what was in work for the last time under a worker that is silent."""
    if slot.working is None or not slot.last or now < slot.due:
        return slot
    return _bury(slot, EXHAUSTED.format(attempts=slot.attempts), now)


def take(slot: Slot, policy: Policy, now: int) -> Slot | None:
    """The slot with its newest request in work; None when there is none to be taken now."""
    slot = reconcile(slot, now)
    if slot.idle or not policy.is_due(slot.due, now):
        return None
    attempts = slot.attempts + 1
    return replace(
        slot,
        waiting=None,
        working=slot.working if slot.waiting is None else slot.waiting,
        attempts=attempts,
        last=attempts >= policy.max_attempts,
        fence=slot.fence + 1,
        due=now + policy.ack_wait,
    )


def extend(slot: Slot, fence: int, policy: Policy, now: int) -> Slot:
    _demand(slot, fence)
    return replace(slot, due=now + policy.ack_wait)


def acknowledge(slot: Slot, fence: int, watermark: int, now: int) -> Slot:
    """Acknowledge a delivery. Idempotent."""
    if slot.fence == fence and slot.working is None and slot.done >= watermark:
        return slot
    _demand(slot, fence)
    covered = slot.buried is not None and slot.buried.watermark <= watermark
    return replace(
        slot,
        done=max(slot.done, watermark),
        working=None,
        attempts=0,
        last=False,
        due=now,
        buried=None if covered else slot.buried,
    )


def retry(slot: Slot, fence: int, delay: int, reason: str, now: int) -> Slot:
    """Try again after `delay`; bury after the last attempt. Idempotent."""
    if slot.fence == fence and slot.working is None and (slot.waiting is not None or slot.buried is not None):
        return slot
    _demand(slot, fence)
    if slot.last:
        return _bury(slot, reason, now)
    waiting = slot.working if slot.waiting is None else slot.waiting
    return replace(slot, waiting=waiting, working=None, due=now + delay)


def postpone(slot: Slot, fence: int, delay: int, now: int) -> Slot:
    """Postpone a delivery without counting the attempt: to be taken after `delay`. Idempotent."""
    if slot.fence == fence and slot.working is None and slot.waiting is not None:
        return slot
    _demand(slot, fence)
    waiting = slot.working if slot.waiting is None else slot.waiting
    return replace(slot, waiting=waiting, working=None, attempts=slot.attempts - 1, last=False, due=now + delay)


def bury(slot: Slot, fence: int, watermark: int, reason: str, now: int) -> Slot:
    """Give a request up as a dead letter. Idempotent."""
    if slot.fence == fence and slot.working is None and slot.buried and slot.buried.watermark == watermark:
        return slot
    _demand(slot, fence)
    return _bury(slot, reason, now)


def refuse(slot: Slot, reason: str, now: int) -> Slot:
    """Record a malformed message as a dead letter without a request, unless there is another one."""
    return slot if slot.buried is not None else replace(slot, buried=Buried(0, 0, storable(reason[:MAX_REASON]), now))


def requeue(slot: Slot, now: int, trace: str = "") -> Slot:
    """Try a dead letter again, with attempts anew; merely forget it when what is newer waits or is in work."""
    letter = _demand_buried(slot)
    if not slot.idle:
        return replace(slot, buried=None)
    return replace(slot, buried=None, waiting=letter.watermark, attempts=0, due=now, trace=trace)


def forget(slot: Slot, watermark: int = -1) -> Slot:
    """Forget all requests up to this watermark, and the dead letter; a handler that works on one is overtaken.
    Idempotent.
    """
    forgotten = Slot(
        seen=max(slot.seen, watermark), done=slot.done, fence=slot.fence + (slot.working is not None), due=slot.due
    )
    return slot if forgotten == slot else forgotten


def drop(slot: Slot) -> Slot:
    _demand_buried(slot)
    return replace(slot, buried=None)


def _bury(slot: Slot, reason: str, now: int) -> Slot:
    """Afterwards the waiting request is next, with new attempts."""
    assert slot.working is not None
    letter = Buried(slot.working, slot.attempts, storable(reason[:MAX_REASON]), now)
    return replace(slot, working=None, attempts=0, last=False, due=now, buried=letter)


def _demand(slot: Slot, fence: int) -> None:
    if slot.working is None or slot.fence != fence:
        raise Fenced(f"delivery {fence} is not in work any more: number {slot.fence} was the last one")


def _demand_buried(slot: Slot) -> Buried:
    if slot.buried is None:
        raise Conflict("there is no such dead letter (any more)")
    return slot.buried
