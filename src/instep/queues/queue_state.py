"""Stored state of a queue, in its own database, and the phase that follows from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final, Self

from instep.domain.pending_queue import KeyRange, QueueKey, share
from instep.queues.engines.queue_engine import PendingStore

#: An equal comparison is good for so long.
RECENT: Final = 24 * 60 * 60_000

_BACKFILL: Final = "backfill"
_VERDICT: Final = "verify"
_READER: Final = "reader"


class Phase(StrEnum):
    """The phase of a queue on its way."""

    DECLARED = "declared"
    CREATED = "created"
    BACKFILLING = "backfilling"
    BACKFILLED = "backfilled"
    VERIFIED = "verified"
    SWITCHED = "switched"


@dataclass(frozen=True, slots=True)
class Filling:
    """The progress of a backfill: of the keys beyond `after` and up to `upto`, those up to `reached` are done. Times
    are milliseconds, those that it was interrupted for left out.
    """

    after: QueueKey | None
    reached: QueueKey | None
    upto: QueueKey | None
    keys: int = 0
    pending: int = 0
    took: int = 0

    @property
    def complete(self) -> bool:
        return self.reached == self.upto

    @property
    def share(self) -> float:
        """The share done of the range of keys, from 0 to 1."""
        return 1.0 if self.complete else share(KeyRange(self.after, self.upto), self.reached)

    @property
    def rest(self) -> KeyRange:
        return KeyRange(self.reached, self.upto)

    def grown(self, reached: QueueKey | None, keys: int, pending: int, took: int) -> Self:
        return replace(
            self,
            reached=reached,
            keys=self.keys + keys,
            pending=self.pending + pending,
            took=self.took + took,
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings of a comparison with the anti-join. `raced` differed for a moment only, `held` are out of what is
    read since the ledger has them, `stale` are offered though covered (reading withdraws them): all three are as they
    should be. `garbage` are rows of each table with a key that the queue cannot have.
    """

    at: int
    pending: int
    missing: int
    surplus: int
    held: int
    stale: int
    raced: int
    repaired: int
    took: int
    garbage: dict[str, int] | None = None

    @property
    def equal(self) -> bool:
        return not self.missing and not self.surplus


@dataclass(frozen=True, slots=True)
class QueueMemory:
    """Everything that a queue remembers."""

    filling: Filling | None = None
    verdict: Verdict | None = None
    switched: bool = False

    @property
    def phase(self) -> Phase:
        """The phase of a queue that was created."""
        if self.switched:
            return Phase.SWITCHED
        if self.filling is None:
            return Phase.CREATED
        if not self.filling.complete:
            return Phase.BACKFILLING
        return Phase.VERIFIED if self.verdict is not None and self.verdict.equal else Phase.BACKFILLED

    def why_not_switch(self, now: int) -> tuple[str, str] | None:
        """The reason against reading from the queue, and the command that helps; None if there is none."""
        if self.filling is None or not self.filling.complete:
            return "is not backfilled", "backfill"
        if self.verdict is None:
            return "was not compared with its anti-join", "verify"
        if not self.verdict.equal:
            return "differed from its anti-join when it was last compared", "verify"
        if now - self.verdict.at > RECENT:
            return "was last compared with its anti-join more than a day ago", "verify"
        return None


def recall(store: PendingStore) -> QueueMemory:
    kept = store.recall()
    return QueueMemory(
        _filling(found) if (found := _read(kept, _BACKFILL)) else None,
        Verdict(**found) if (found := _read(kept, _VERDICT)) else None,
        kept.get(_READER) == "queue",
    )


def _filling(found: dict[str, Any]) -> Filling:
    if "below" in found:  # An earlier form: ranges from their lowest key up to, and without, another.
        edges = [found.pop(name) - 1 for name in ("lowest", "reached", "below")]
        return Filling(*edges, **found)
    return Filling(**found)


def remember_filling(store: PendingStore, filling: Filling) -> None:
    store.remember(_BACKFILL, json.dumps(asdict(filling)))


def remember_verdict(store: PendingStore, verdict: Verdict) -> None:
    store.remember(_VERDICT, json.dumps(asdict(verdict)))


def remember_reader(store: PendingStore, *, switched: bool) -> None:
    store.remember(_READER, "queue" if switched else "legacy")


def _read(kept: Mapping[str, str], name: str) -> dict[str, Any] | None:
    text = kept.get(name)
    return json.loads(text) if text else None
