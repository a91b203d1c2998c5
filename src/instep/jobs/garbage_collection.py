"""Collect garbage: forget old jobs, instances and wants, but nothing that is still needed or referred to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from instep.domain.lineage import collectable, collectable_wants
from instep.domain.refs import PartitionRef
from instep.domain.state import State
from instep.ledger.ledger import Ledger

#: Number forgotten by one event, so that the ledger is not locked for long.
BATCH = 500

#: Workers look through instances and wants so many times in the time for which these are kept: all of them are read
#: for that. And they forget jobs in so many transactions after each of their own, which is more than one can leave.
_LOOKS = 10
_TRANSACTIONS = 30


@dataclass(frozen=True, slots=True)
class Garbage:
    """Instances and wants that may be forgotten (or were), oldest first, with the number of instances by partition; and
    how many jobs, slices of them, and events.
    """

    instances: tuple[str, ...]
    wants: tuple[str, ...]
    by_ref: dict[str, int]
    keep: int
    collected: bool
    jobs: int = 0
    slices: int = 0
    events: int = 0

    @property
    def empty(self) -> bool:
        """Whether there is nothing to forget."""
        return not (self.instances or self.wants or self.jobs or self.slices or self.events)


def collect(ledger: Ledger, *, keep: int, losses: int = 0, dry_run: bool = False) -> Garbage:
    """Forget jobs, instances and wants that ended more than `keep` ms ago, and events that are older, in batches; with
    `dry_run` only list. Jobs that ended less than `losses` ms ago stay: what they have deleted still counts.
    """
    state, now = ledger.events.state(), ledger.now()
    instances = collectable(state, now, keep)
    instances = collectable(state, now, keep, _in_work(ledger, state, instances))
    wants = collectable_wants(state, now, keep)
    before = now - max(keep, losses)
    old = ledger.retention.forgettable(before)
    oldest = ledger.retention.oldest(now - keep)
    events = ledger.events.forgettable(oldest)
    if not dry_run:
        while ledger.retention.forget(before).more:
            pass
        while ledger.events.forget(oldest):
            pass
        # Wants refer to instances, and newer instances to older ones: if this stops half-way, no kept record refers to
        # a forgotten one. A want is older than the wants that it waits for: so the oldest go first.
        for some in _batches(wants):
            ledger.events.collect((), some)
        for some in _batches(instances[::-1]):
            ledger.events.collect(some, ())
    refs = Counter(state.instances[each].ref for each in instances)
    by_ref = dict(sorted(refs.items()))
    return Garbage(tuple(instances), tuple(wants), by_ref, keep, not dry_run, old.jobs, old.slices, events)


def forget_some(ledger: Ledger, *, keep: int) -> None:
    """Forget a bounded number of jobs that ended more than `keep` ms ago, and of events that are older; now and then
    all such instances and wants.
    """
    before = ledger.now() - keep
    for _ in range(_TRANSACTIONS):
        if not ledger.retention.forget(before).more:
            break
    oldest = ledger.retention.oldest(before)
    for _ in range(_TRANSACTIONS):
        if not ledger.events.forget(oldest):
            break
    if ledger.retention.due(keep // _LOOKS):
        collect(ledger, keep=keep)


def _in_work(ledger: Ledger, state: State, candidates: Sequence[str]) -> set[str]:
    """Ended instances that a job still works on: it has not noticed yet, or was stopped and may be resumed."""
    found: set[str] = set()
    for ref, generation in dict.fromkeys(state.instances[each].key for each in candidates):
        parsed = PartitionRef.parse(ref)
        job = ledger.jobs.unfinished(parsed, generation)
        if job is not None:
            part = job.part(parsed).part
            found.update((part.instance, *part.inputs))
    return found


def _batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), BATCH):
        yield ids[start : start + BATCH]
