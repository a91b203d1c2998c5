"""Events that may be appended, possible or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from instep.domain.events import (
    DependencyMissed,
    Event,
    GenerationPromoted,
    InstanceBuilding,
    InstanceCreated,
    InstanceExpired,
    InstanceFailed,
    InstanceServed,
    InstanceTainted,
    PartitionDropped,
    WantCanceled,
    WantCreated,
)
from instep.domain.instances import Reason
from instep.domain.refs import PartitionRef
from tests.contracts.ledger import OTHER, REF


class About(NamedTuple):
    """`old` is a want that may be there, `new` one that is not."""

    uuid: str
    ref: PartitionRef
    job_id: str
    old: str
    new: str
    now: int


KINDS: Mapping[str, Callable[[About], Event]] = {
    "taint": lambda it: InstanceTainted(instance=it.uuid, why="wrong", by="ann"),
    "expire": lambda it: InstanceExpired(instance=it.uuid, ttl=7),
    "serve": lambda it: InstanceServed(instance=it.uuid, by="bob"),
    "want": lambda it: WantCreated(want=it.new, refs=(str(it.ref),)),
    "want it fresh": lambda it: WantCreated(want=it.new, refs=(str(it.ref),), fresh_within=0),
    "want both": lambda it: WantCreated(want=it.new, refs=(str(REF), str(OTHER)), as_of=it.now - 9, by="cid"),
    "want again": lambda it: WantCreated(want=it.old, refs=(str(it.ref),)),
    "want v2": lambda it: WantCreated(want=it.new, refs=(str(it.ref),), generation="v2"),
    "cancel": lambda it: WantCanceled(want=it.old, by="ann", why="no need"),
    "miss": lambda it: _missed(it, str(it.ref)),
    "miss another": lambda it: _missed(it, "Upstream@global"),
    "generation": lambda it: InstanceCreated(ref=str(it.ref), reason=Reason.GENERATION, generation="v2"),
    "promote": lambda it: GenerationPromoted(ref=str(it.ref), generation="", by="ann"),
    "promote v2": lambda it: GenerationPromoted(ref=str(it.ref), generation="v2"),
    "drop": lambda it: PartitionDropped(ref=str(it.ref), generations=("", "v2"), by="ann"),
    "build": lambda it: InstanceBuilding(instance=it.uuid, job=it.job_id, target=it.now, fingerprint={}),
    "fail": lambda it: InstanceFailed(instance=it.uuid, job=it.job_id, error="no \udcff such file"),
}


def _missed(it: About, ref: str) -> Event:
    return DependencyMissed(job=it.job_id, instances=(it.uuid,), want=it.new, missing=(ref,))
