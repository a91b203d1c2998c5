"""Answers about queues: their status, the keys that are given out, and the outcome of each."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from instep.answers.answer import HIDDEN, OBJECT, OPTIONAL, Answer
from instep.domain.key_leases import KeyLeaseState
from instep.domain.pending_queue import KeyKind
from instep.ledger.key_lease_rows import KeyLeaseCount
from instep.ledger.ledger import Ledger
from instep.queues.consumers import Effect, Given
from instep.queues.engines.queue_engine import Ask, PendingStore
from instep.queues.queue_state import Filling, Phase, QueueMemory, Verdict, recall


class GivenKey(Answer):
    """A key to work on. `until` is the end of its lease. (`last_error` is not called `error`, since a consumer gives
    `error` when it reports the key as failed.)
    """

    key: int | str
    fence: int | None = OPTIONAL
    until: str | None = OPTIONAL
    event_time: str | None = OPTIONAL
    attempts: int | None = OPTIONAL
    last_error: str | None = OPTIONAL

    @classmethod
    def of(cls, given: Given) -> Self:
        return cls(
            key=given.key,
            fence=given.fence,
            until=None if given.until is None else datetime.fromtimestamp(given.until / 1000, UTC).isoformat(),
            event_time=None if given.event_time is None else given.event_time.isoformat(),
            attempts=given.attempts or None,
            last_error=given.error,
        )


class KeyOutcome(Answer):
    """The effect of an `ack` or `fail` on one key. `due` is the time of the next try, in ms since 1970; `why` is the
    reason if nothing was changed.
    """

    key: int | str
    effect: Effect
    why: str | None = OPTIONAL
    attempts: int | None = OPTIONAL
    due: int | None = OPTIONAL


class Held(Answer):
    """Keys in one state: their number, the number that others may have now, and the time of the oldest."""

    keys: int
    due: int
    since: int | None


class QueueStatus(Answer):
    """Phase of a queue, and the keys in it."""

    name: str
    on: str
    phase: Phase
    reads: Literal["queue", "anti-join"]
    backfill: dict[str, Any] | None
    verify: dict[str, Any] | None
    offered: int | None
    withdrawn: int | None
    garbage: dict[str, int] | None
    bytes: int | None
    oldest_key: int | str | None
    oldest: str | None
    leased: Held
    retrying: Held
    parked: Held
    now: int
    filling: Annotated[Filling, OBJECT] | None = HIDDEN
    verdict: Annotated[Verdict, OBJECT] | None = HIDDEN

    @property
    def oldest_at(self) -> datetime | None:
        """The time of the event of the oldest key that is offered, where the queue knows such times."""
        return None if self.oldest is None else datetime.fromisoformat(self.oldest)


def queue_status(store: PendingStore, oldest_first: PendingStore, on: str, ledger: Ledger) -> QueueStatus:
    """`oldest_first` is the same queue, read in that order."""
    name, there = store.spec.name, store.exists()
    words = recall(store) if there else QueueMemory()
    holds = ledger.key_leases.count(name)
    oldest = next(iter(oldest_first.read(Ask(1))), None) if there else None
    filling, verdict = words.filling, words.verdict
    counts = store.counts() if there else None
    when = None if oldest is None else oldest.event_time
    phase = words.phase if there else Phase.DECLARED
    return QueueStatus(
        name=name,
        on=on,
        phase=phase,
        reads="queue" if phase is Phase.SWITCHED else "anti-join",
        backfill=None if filling is None else {**asdict(filling), "share": filling.share},
        verify=None if verdict is None else {**asdict(verdict), "equal": verdict.equal},
        offered=None if counts is None else counts.offered,
        withdrawn=None if counts is None else counts.withdrawn,
        garbage=_garbage(store, verdict) if there else None,
        bytes=None if counts is None else counts.bytes,
        oldest_key=None if oldest is None else oldest.key,
        oldest=None if when is None else when.isoformat(),
        leased=_held(holds.get(KeyLeaseState.LEASED)),
        retrying=_held(holds.get(KeyLeaseState.WAITING)),
        parked=_held(holds.get(KeyLeaseState.PARKED)),
        now=ledger.now(),
        filling=filling,
        verdict=verdict,
    )


def _garbage(store: PendingStore, verdict: Verdict | None) -> dict[str, int] | None:
    """Garbage by table: among texts as of the last comparison, which reads them all anyway."""
    if store.spec.kind is not KeyKind.TEXT:
        return store.garbage()
    return verdict.garbage if verdict else None


def _held(count: KeyLeaseCount | None) -> Held:
    return (
        Held(keys=0, due=0, since=None)
        if count is None
        else Held(keys=count.keys, due=count.due, since=count.since or None)
    )
