"""Lease keys of a queue to consumers, and record their ack or failure.

The ledger has every key that is leased, or that has failed. It and the queue are two databases, so each step
can be the last one of a process; what keeps that safe:

* A key is given out after the ledger has its lease, and confirmed once more then: another consumer may have done it
  between its reading and its lease.
* The ledger forgets a key only for its holder, after the queue has it covered.
* An offer is withdrawn only while the ledger has its key at rest (waiting, or parked), and only as it was before that
  was looked up. So a key that is forgotten was either not withdrawn, or has been offered again since.
* Keys that a process leaves behind become due, and the next consumer retries them, or finds them covered.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from instep.domain.key_leases import MAX_BATCH, KeyLease, KeyLeaseState, Refusal, retry_share
from instep.domain.pending_queue import QueueKey
from instep.domain.whole_numbers import demand_whole
from instep.errors import UserError
from instep.ledger.key_leases import KeyFailure
from instep.ledger.ledger import Ledger
from instep.queues.engines.queue_engine import Ask, Offer, PendingStore

#: The first page has as many keys as are wanted; if others have those, the next ones are longer, up to this.
_LONGEST_PAGE: Final = 10_000

#: How many retries are looked at, at least, and for each that is wanted: some are covered, or others take them.
_FEWEST_LOOKED_AT: Final = 200
_LOOKED_AT_FOR_EACH: Final = 4

#: As whom, and for how long, keys are leased that are only to be forgotten; and how long an acknowledgement may take.
_CLEANER: Final = "instep"
_MOMENT: Final = 60_000

MAX_HOLDER: Final = 128
_SHORTEST: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Wanted:
    """At most `limit` keys, leased to `holder` for so long; without one they are only read. `legacy`: as the anti-join
    says, in its order, whether they failed before or not.
    """

    limit: int
    holder: str | None = None
    lasting: timedelta = timedelta(0)
    participants: tuple[int, ...] = ()
    legacy: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """A key to be worked on. `fence` is to be shown with what becomes of it; `until` is when its lease ends."""

    key: QueueKey
    event_time: datetime | None = None
    attempts: int = 0
    error: str | None = None
    fence: int | None = None
    until: int | None = None


class Ack(NamedTuple):
    """`fence` is None from a consumer that reads without leases."""

    key: QueueKey
    fence: int | None = None


class Effect(StrEnum):
    ACKED = "acked"
    FAILED = "failed"
    PARKED = "parked"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a consumer for a key. `due` is when it is tried again."""

    key: QueueKey
    effect: Effect
    why: str | None = None
    attempts: int | None = None
    due: int | None = None


def next_keys(store: PendingStore, ledger: Ledger, wanted: Wanted, draw: float) -> list[Given]:
    """Fresh keys in the order of the queue, then those that failed before and are due. `draw`, any number from 0 to 1,
    decides about the last of these (`domain.key_leases.retry_share`). Where there is nothing else, one is given.
    """
    demand_whole(limit=wanted.limit)
    if not 1 <= wanted.limit <= MAX_BATCH:
        raise UserError(f"{wanted.limit:,} keys at once", hint=f"Ask for 1 to {MAX_BATCH:,}.")
    if wanted.holder is not None and not (1 <= len(wanted.holder) <= MAX_HOLDER and wanted.lasting >= _SHORTEST):
        raise UserError(
            f"a lease for {wanted.holder!r} of {wanted.lasting.total_seconds():g} s",
            hint=f"Give it a name of at most {MAX_HOLDER} characters, and at least a second.",
        )
    giving = _Giving(store, ledger, wanted)
    # Retries cannot say whom they concern; and the anti-join has them among all others.
    mixed = bool(wanted.participants) or wanted.legacy
    retries = [] if mixed else giving.retries(min(wanted.limit, retry_share(wanted.limit, draw)))
    fresh = giving.fresh(wanted.limit - len(retries))
    if not fresh and not retries and not mixed:
        return giving.retries(1)
    return fresh + retries


def acknowledge(store: PendingStore, ledger: Ledger, acks: Sequence[Ack]) -> list[Answer]:
    """Acknowledge keys, with one answer for each, of which the last word counts. Again it does no harm."""
    queue, named = store.spec.name, {each.key: store.spec.key_of(each.key) for each in acks}
    fences = {key: each.fence for each in acks if (key := named[each.key]) is not None}
    shown = {key: fence for key, fence in fences.items() if fence is not None}
    # They are not leased while they are being covered.
    kept = ledger.key_leases.extend(queue, shown, lasting=_MOMENT)
    # One that failed, and that was not leased since, may still turn out well.
    refused = {key: why for key, why in kept.items() if why is not Refusal.COUNTED}
    refused |= _leased(ledger, queue, [key for key, fence in fences.items() if fence is None and key not in refused])
    covered = [key for key in fences if key not in refused]
    if covered:
        store.acknowledge(covered)
        ledger.key_leases.forget(queue, {key: fence for key, fence in shown.items() if key not in kept})
    refused[None] = Refusal.IMPOSSIBLE
    return [
        _refused(said, refused[key]) if key in refused else Answer(said, Effect.ACKED) for said, key in named.items()
    ]


def fail(store: PendingStore, ledger: Ledger, failures: Sequence[KeyFailure]) -> list[Answer]:
    """Record failures of keys, with one answer for each, of which the last word counts. Again it counts once. What
    waits or is parked leaves the queue's offers when it is met there the next time.
    """
    named = {each.key: store.spec.key_of(each.key) for each in failures}
    inside = [each._replace(key=key) for each in failures if (key := named[each.key]) is not None]
    found = {None: Refusal.IMPOSSIBLE, **ledger.key_leases.fail(store.spec.name, inside)}
    return [_after(said, found[key]) for said, key in named.items()]


def parked(
    store: PendingStore, ledger: Ledger, *, after: QueueKey | None = None, limit: int = 1_000
) -> dict[QueueKey, KeyLease]:
    """Read parked keys beyond `after`, in order. A key that was covered since is not parked any more."""
    queue = store.spec.name
    found: dict[QueueKey, KeyLease] = {}
    while len(found) < limit and (page := ledger.key_leases.parked(queue, after=after, limit=limit - len(found))):
        pending = store.confirm(page)
        covered = [key for key in page if key not in pending]
        ledger.key_leases.unpark(queue, covered)
        _forget_covered(store, ledger, covered)
        found |= {key: hold for key, hold in page.items() if key in pending}
        after = max(page)
    return found


def unpark(store: PendingStore, ledger: Ledger, keys: Collection[QueueKey]) -> set[QueueKey]:
    """Make parked keys due now; those that were not parked are left out of the answer."""
    named = (store.spec.key_of(each) for each in keys)
    return ledger.key_leases.unpark(store.spec.name, {each for each in named if each is not None})


class _Giving:
    """The state of one `next_keys`."""

    def __init__(self, store: PendingStore, ledger: Ledger, wanted: Wanted) -> None:
        self._store = store
        self._ledger = ledger
        self._wanted = wanted
        self._queue = store.spec.name
        self._lasting = wanted.lasting // timedelta(milliseconds=1)

    def fresh(self, room: int) -> list[Given]:
        given: list[Given] = []
        after, size = None, room
        settled = self._settled()
        while len(given) < room:
            page = self._page(Ask(size, settled, after, self._wanted.participants))
            if not page:
                break
            given += self._give(self._free(page), room - len(given))
            after, size = page[-1].key, max(size, min(2 * size, _LONGEST_PAGE))
        return given

    def retries(self, room: int) -> list[Given]:
        limit = min(MAX_BATCH, max(_LOOKED_AT_FOR_EACH * room, _FEWEST_LOOKED_AT))
        due = self._ledger.key_leases.due(self._queue, limit) if room else {}
        if not due:
            return []
        pending = self._store.confirm(due)
        _forget_covered(self._store, self._ledger, [key for key in due if key not in pending])
        free = [_free(key, hold) for key, hold in due.items() if key in pending]
        return self._give(free, room, retries=True)

    def _settled(self) -> datetime | None:
        spec = self._store.spec
        if spec.source.event_time is None:
            return None
        return datetime.fromtimestamp(self._ledger.now() / 1000, UTC) - spec.settle

    def _page(self, ask: Ask) -> list[Offer]:
        if self._wanted.legacy:
            return [Offer(key, 0, None) for key in self._store.anti_join(ask)]
        return self._store.read(ask)

    def _free(self, page: Sequence[Offer]) -> list[Given]:
        """The keys of a page without a lease. The ones that wait for another try need not be offered any more."""
        held = self._ledger.key_leases.held(self._queue, [each.key for each in page])
        if not self._wanted.legacy:
            at_rest = [each for each in page if each.key in held and held[each.key].state is not KeyLeaseState.LEASED]
            if at_rest:
                self._store.withdraw(at_rest)
        now = self._ledger.now() if held else 0
        return [
            _free(each.key, held.get(each.key), each.event_time)
            for each in page
            if self._is_free(held.get(each.key), now)
        ]

    def _is_free(self, hold: KeyLease | None, now: int) -> bool:
        return hold is None or (hold.is_due(now) and (self._wanted.legacy or not hold.attempts))

    def _give(self, free: Sequence[Given], room: int, *, retries: bool = False) -> list[Given]:
        """Lease as many as there is room for; others may be quicker."""
        if self._wanted.holder is None:
            return list(free[:room])
        given: list[Given] = []
        first = 0
        while first < len(free) and len(given) < room:
            some = free[first : first + room - len(given)]
            first += len(some)
            given += self._lease({each.key: each for each in some}, self._wanted.holder, retries=retries)
        return given

    def _lease(self, free: Mapping[QueueKey, Given], holder: str, *, retries: bool) -> list[Given]:
        retries = retries or self._wanted.legacy
        leased = self._ledger.key_leases.lease(
            self._queue, list(free), holder, lasting=self._lasting, retries=retries
        ).leased
        # Not by the queue, which may not know all keys yet.
        pending = leased.keys() if self._wanted.legacy or not leased else self._store.confirm(leased)
        self._ledger.key_leases.forget(
            self._queue, {key: each.fence for key, each in leased.items() if key not in pending}
        )
        return [
            Given(key, free[key].event_time, each.attempts, each.error, each.fence, each.due)
            for key, each in leased.items()
            if key in pending
        ]


def _free(key: QueueKey, hold: KeyLease | None, event_time: datetime | None = None) -> Given:
    """A key that is not leased, or not any more."""
    return Given(key, event_time) if hold is None else Given(key, event_time, hold.attempts, hold.error)


def _forget_covered(store: PendingStore, ledger: Ledger, keys: Sequence[QueueKey]) -> None:
    """Delete the ledger's rows of keys that were found covered. They are leased for that: see above."""
    queue = store.spec.name
    if not keys:
        return
    leased = ledger.key_leases.lease(queue, keys, _CLEANER, lasting=_MOMENT, retries=True).leased
    pending = store.confirm(leased) if leased else set()
    ledger.key_leases.forget(queue, {key: hold.fence for key, hold in leased.items() if key not in pending})
    ledger.key_leases.release(queue, {key: hold.fence for key, hold in leased.items() if key in pending})


def _leased(ledger: Ledger, queue: str, keys: Collection[QueueKey]) -> dict[QueueKey, Refusal]:
    held = ledger.key_leases.held(queue, keys) if keys else {}
    now = ledger.now() if held else 0
    others = {key: each for key, each in held.items() if each.state is KeyLeaseState.LEASED and not each.is_due(now)}
    return dict.fromkeys(others, Refusal.LEASED)


def _after(key: QueueKey, found: KeyLease | Refusal) -> Answer:
    if isinstance(found, Refusal):
        return _refused(key, found)
    effect = Effect.PARKED if found.state is KeyLeaseState.PARKED else Effect.FAILED
    return Answer(key, effect, None, found.attempts, found.due)


def _refused(key: QueueKey, why: Refusal) -> Answer:
    return Answer(key, Effect.UNKNOWN if why in (Refusal.UNKNOWN, Refusal.IMPOSSIBLE) else Effect.REFUSED, str(why))
