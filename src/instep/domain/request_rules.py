"""What becomes of the requests of one handler in one scope: a value, and the moves that it can make.

Every bus keeps one `Slot` for each of these, and changes it by these functions only. How it is kept (a row, a key
whose revision is compared) is all in which buses differ. Times are milliseconds by the bus's own clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from instep.domain.refs import is_entity_name
from instep.domain.storable import storable
from instep.errors import Conflict, Fenced

MAX_REASON: Final = 2_000
_HOUR: Final = 3_600_000

#: Why a delivery is dead whose worker never said what became of it.
EXHAUSTED: Final = "its worker did not answer for the last of {attempts} attempts"


@dataclass(frozen=True, slots=True)
class Policy:
    """How often a request is tried, and when again. A worker that says nothing for `ack_wait` is taken for dead.

    After the n-th attempt the n-th pause of `backoff` is made, then always the last one. Of all deliveries of
    consumers in one `group`, whichever servers they are on, at most `limit` are in work at once.
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
        """No request waits longer than that, or is in work for longer without a word."""
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
    """`seen`: newest watermark that was asked for. `done`: newest that was acknowledged. `waiting`, `working`: the
    watermarks that wait and are in work, None for none. `due`: when the one in work is given up, else when the
    waiting one may be taken. `last`: the attempt in work is the last one. `fence` grows with every attempt. `trace` is
    that of who asked last, as `telemetry.context` has it: what is taken is always the newest.
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
    """What waits is replaced by what is newer, and keeps its pause and its attempts: it is the scope that failed."""
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
    """Again it changes nothing."""
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
    """To be tried again after `delay`; buried after the last attempt. Again it changes nothing."""
    if slot.fence == fence and slot.working is None and (slot.waiting is not None or slot.buried is not None):
        return slot
    _demand(slot, fence)
    if slot.last:
        return _bury(slot, reason, now)
    waiting = slot.working if slot.waiting is None else slot.waiting
    return replace(slot, waiting=waiting, working=None, due=now + delay)


def postpone(slot: Slot, fence: int, delay: int, now: int) -> Slot:
    """It was not tried after all: to be taken after `delay`; the attempt does not count. Again it changes nothing."""
    if slot.fence == fence and slot.working is None and slot.waiting is not None:
        return slot
    _demand(slot, fence)
    waiting = slot.working if slot.waiting is None else slot.waiting
    return replace(slot, waiting=waiting, working=None, attempts=slot.attempts - 1, last=False, due=now + delay)


def bury(slot: Slot, fence: int, watermark: int, reason: str, now: int) -> Slot:
    """Again it changes nothing."""
    if slot.fence == fence and slot.working is None and slot.buried and slot.buried.watermark == watermark:
        return slot
    _demand(slot, fence)
    return _bury(slot, reason, now)


def refuse(slot: Slot, reason: str, now: int) -> Slot:
    """Something came that is no request: a dead letter that asks for nothing, unless there is another one."""
    return slot if slot.buried is not None else replace(slot, buried=Buried(0, 0, storable(reason[:MAX_REASON]), now))


def requeue(slot: Slot, now: int, trace: str = "") -> Slot:
    """Try a dead letter again, with attempts anew; merely forget it when what is newer waits or is in work."""
    letter = _demand_buried(slot)
    if not slot.idle:
        return replace(slot, buried=None)
    return replace(slot, buried=None, waiting=letter.watermark, attempts=0, due=now, trace=trace)


def forget(slot: Slot, watermark: int = -1) -> Slot:
    """As if nothing that was asked so far (up to this watermark, too) were to be done: whoever is at it is overtaken,
    and the letter is gone. Again it changes nothing.
    """
    forgotten = Slot(
        seen=max(slot.seen, watermark), done=slot.done, fence=slot.fence + (slot.working is not None), due=slot.due
    )
    return slot if forgotten == slot else forgotten


def drop(slot: Slot) -> Slot:
    _demand_buried(slot)
    return replace(slot, buried=None)


def _bury(slot: Slot, reason: str, now: int) -> Slot:
    """What waits comes next, as if nothing had been before it."""
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
