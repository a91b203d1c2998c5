"""What people say of partitions while jobs go on: that they want them, or that they are wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

from instep.domain.events import Event, InstanceExpired, InstanceTainted, WantCanceled, WantCreated
from instep.domain.refs import PartitionRef
from instep.errors import InstepError
from instep.ledger.port import Ledger


class Users:
    """`doubt`: they may find that an instance is wrong, or too old, so that it must be built again."""

    def __init__(self, ledger: Ledger, refs: Sequence[PartitionRef], seed: int, *, doubt: bool) -> None:
        self._ledger = ledger
        self._refs = refs
        # Their own: what they do changes nothing of what else a seed brings.
        self._random = Random(f"users of {seed}")
        actions = ("want", "want it fresh", "want all", "cancel") + (("taint", "expire") if doubt else ())
        self._actions = self._random.choices(actions, k=3)
        self._mean = self._random.choice((20_000, 2 * 60_000, 10 * 60_000))
        self._wants: list[str] = []

    def live(self, sleep: Callable[[float], None], over: Callable[[], bool]) -> None:
        while True:
            sleep(self._random.expovariate(1 / self._mean))
            if over():
                return
            event = self._event(self._random.choice(self._actions))
            if event is not None:
                with suppress(InstepError):  # It is in work, or there no more.
                    self._ledger.append([event])

    def _event(self, action: str) -> Event | None:
        ref = self._random.choice(self._refs)
        if action.startswith("want"):
            self._wants.append(f"want-{len(self._wants) + 1}")
            refs = self._refs if "all" in action else [ref]
            fresh_within = self._random.choice((0, 60_000)) if "fresh" in action else None
            return WantCreated(want=self._wants[-1], refs=tuple(map(str, refs)), fresh_within=fresh_within)
        if action == "cancel":
            return WantCanceled(want=self._random.choice(self._wants), why="no need") if self._wants else None
        current = self._ledger.canonical(ref)
        if current is None:
            return None
        if action == "taint":
            return InstanceTainted(instance=current.uuid, why="it is wrong")
        return InstanceExpired(instance=current.uuid)
