"""Collection: old instances and wants are forgotten, never what anything that stays refers to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from instep.domain.lineage import collectable, collectable_wants
from instep.domain.refs import PartitionRef
from instep.domain.state import State
from instep.ledger.ledger import Ledger

#: So many are forgotten by one event: nobody waits long for the ledger meanwhile.
BATCH = 500


@dataclass(frozen=True, slots=True)
class Garbage:
    """What may be forgotten (or was), the oldest first, with the number of instances by partition."""

    instances: tuple[str, ...]
    wants: tuple[str, ...]
    by_ref: dict[str, int]
    keep: int
    collected: bool

    @property
    def empty(self) -> bool:
        return not self.instances and not self.wants

    def as_dict(self) -> dict[str, Any]:
        return {
            "instances": list(self.instances),
            "wants": list(self.wants),
            "by_ref": self.by_ref,
            "keep_ms": self.keep,
            "collected": self.collected,
        }


def collect(ledger: Ledger, *, keep: int, dry_run: bool = False) -> Garbage:
    """Forget what was left, or has ended, for longer than `keep` ms, in batches; or only look."""
    state, now = ledger.state(), ledger.now()
    instances = collectable(state, now, keep)
    instances = collectable(state, now, keep, _in_work(ledger, state, instances))
    wants = collectable_wants(state, now, keep)
    if not dry_run:
        # Wants refer to instances, and newer instances to older ones: should this stop half-way, what stays refers to
        # nothing that is gone. A want that waits for another is older than that: here the oldest go first.
        for some in _batches(wants):
            ledger.collect((), some)
        for some in _batches(instances[::-1]):
            ledger.collect(some, ())
    refs = Counter(state.instances[each].ref for each in instances)
    return Garbage(tuple(instances), tuple(wants), dict(sorted(refs.items())), keep, not dry_run)


def _in_work(ledger: Ledger, state: State, candidates: Sequence[str]) -> set[str]:
    """Instances that a job works on though they were left: it does not know yet, or was stopped and may go on."""
    found: set[str] = set()
    for ref, generation in dict.fromkeys(state.instances[each].key for each in candidates):
        parsed = PartitionRef.parse(ref)
        job = ledger.unfinished_job(parsed, generation)
        if job is not None:
            part = job.part(parsed).part
            found.update((part.instance, *part.inputs))
    return found


def _batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), BATCH):
        yield ids[start : start + BATCH]
