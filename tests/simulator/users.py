"""What people say of partitions while jobs go on: that they want them, that they are wrong, that others have failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

from instep.domain.events import (
    DependencyMissed,
    Event,
    InstanceCreated,
    InstanceExpired,
    InstanceTainted,
    WantCanceled,
    WantCreated,
)
from instep.domain.instances import Instance, Reason
from instep.domain.refs import PartitionRef
from instep.errors import InstepError
from instep.ledger.ledger import Ledger

#: An entity that is never built.
UPSTREAM = "Upstream@global"
#: What is made again by it, at any time; of what is in work, the ledger refuses it.
_DOUBTS = ("taint", "expire", "rebuild")


class Users:
    """`generations` are those that they name besides the one without a name."""

    def __init__(
        self, ledger: Ledger, refs: Sequence[PartitionRef], seed: int, generations: Sequence[str] = ()
    ) -> None:
        self._ledger = ledger
        self._refs = refs
        self._generations = ("", *generations)
        # Their own: what they do changes nothing of what else a seed brings.
        self._random = Random(f"users of {seed}")
        actions = ("want", "want it fresh", "want all", "cancel", "upstream fails", *_DOUBTS, *_DOUBTS)
        self._actions = self._random.choices(actions, k=3)
        self._mean = self._random.choice((20_000, 2 * 60_000, 10 * 60_000))
        self._wants: list[str] = []

    def live(self, sleep: Callable[[float], None], over: Callable[[], bool]) -> None:
        while True:
            sleep(self._random.expovariate(1 / self._mean))
            if over():
                return
            events = self._events(self._random.choice(self._actions))
            if events:
                with suppress(InstepError):  # It is in work, or there no more.
                    self._ledger.events.append(events)

    def _events(self, action: str) -> list[Event]:
        ref = self._random.choice(self._refs)
        generation = self._random.choice(self._generations) if len(self._generations) > 1 else ""
        if action.startswith("want"):
            self._wants.append(f"want-{len(self._wants) + 1}")
            refs = self._refs if "all" in action else [ref]
            fresh_within = self._random.choice((0, 60_000)) if "fresh" in action else None
            names = tuple(map(str, refs))
            return [WantCreated(want=self._wants[-1], refs=names, generation=generation, fresh_within=fresh_within)]
        if action == "cancel":
            return self._cancels(ref)
        current = self._ledger.instances.canonical(ref, generation)
        if current is None:
            return []
        if action == "taint":
            return [InstanceTainted(instance=current.uuid, why="it is wrong")]
        if action == "expire":
            return [InstanceExpired(instance=current.uuid)]
        if action == "rebuild":
            return [InstanceCreated(ref=str(ref), reason=Reason.REBUILD, generation=generation)]
        return self._upstream_fails(current)

    def _cancels(self, ref: PartitionRef) -> list[Event]:
        """What they want, or what a job waits for."""
        waits = [each.id for each in self._ledger.wants.newest(ref=ref, open_only=True) if each.derivative_of]
        known = waits or self._wants
        return [WantCanceled(want=self._random.choice(known), why="no need")] if known else []

    def _upstream_fails(self, current: Instance) -> list[Event]:
        """The job that works on it, whatever it does just now, is told that what it needs cannot be had."""
        job, want = current.worked_on_by, f"upstream-{current.sequence}-{current.refreshes}"
        if job is None:
            return []
        missed = DependencyMissed(job=job, instances=(current.uuid,), want=want, missing=(UPSTREAM,))
        return [missed, WantCanceled(want=want, why="it cannot be had")]
