"""Status of a queue: phase, offered keys, leased keys, and garbage."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from instep.domain.key_leases import KeyLeaseState
from instep.ledger.key_leases import KeyLeaseCount
from instep.ledger.ledger import Ledger
from instep.queues.engines.queue_engine import Ask, PendingStore, QueueCounts
from instep.queues.states import Filling, Phase, QueueMemory, Verdict, recall

_NONE = KeyLeaseCount(0, 0, 0)


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """`oldest` is the time of the event of the oldest key that is offered, where the queue knows such times."""

    name: str
    on: str
    phase: Phase
    filling: Filling | None
    verdict: Verdict | None
    counts: QueueCounts | None
    oldest_key: int | None
    oldest: datetime | None
    leased: KeyLeaseCount
    retrying: KeyLeaseCount
    parked: KeyLeaseCount
    now: int

    def as_dict(self) -> dict[str, Any]:
        verdict = self.verdict
        return {
            "name": self.name,
            "on": self.on,
            "phase": str(self.phase),
            "reads": "queue" if self.phase is Phase.SWITCHED else "anti-join",
            "backfill": None if self.filling is None else {**asdict(self.filling), "share": self.filling.share},
            "verify": None if verdict is None else {**asdict(verdict), "equal": verdict.equal},
            "offered": None if self.counts is None else self.counts.offered,
            "withdrawn": None if self.counts is None else self.counts.withdrawn,
            "garbage": None if self.counts is None else self.counts.garbage,
            "bytes": None if self.counts is None else self.counts.bytes,
            "oldest_key": self.oldest_key,
            "oldest": None if self.oldest is None else self.oldest.isoformat(),
            **{
                name: {**count._asdict(), "since": count.since or None}
                for name, count in (("leased", self.leased), ("retrying", self.retrying), ("parked", self.parked))
            },
            "now": self.now,
        }


def queue_status(store: PendingStore, oldest_first: PendingStore, on: str, ledger: Ledger) -> QueueStatus:
    """`oldest_first` is the same queue, read from its other end."""
    name, there = store.spec.name, store.exists()
    words = recall(store) if there else QueueMemory()
    holds = ledger.count_key_leases(name)
    oldest = next(iter(oldest_first.read(Ask(1))), None) if there else None
    return QueueStatus(
        name=name,
        on=on,
        phase=words.phase if there else Phase.DECLARED,
        filling=words.filling,
        verdict=words.verdict,
        counts=store.counts() if there else None,
        oldest_key=None if oldest is None else oldest.key,
        oldest=None if oldest is None else oldest.event_time,
        leased=holds.get(KeyLeaseState.LEASED, _NONE),
        retrying=holds.get(KeyLeaseState.WAITING, _NONE),
        parked=holds.get(KeyLeaseState.PARKED, _NONE),
        now=ledger.now(),
    )
