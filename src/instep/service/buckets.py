"""Buckets of documents: what each holds, how long its changes take, and which one holds too much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from instep.domain.buckets import SKEW, BucketLoad, skewed
from instep.domain.refs import PartitionRef
from instep.ledger.port import Ledger
from instep.service.documents.setup import DocumentSetup
from instep.service.generations import built, generation_of


@dataclass(frozen=True, slots=True)
class BucketView:
    """All buckets of one generation of a partition, by their numbers, empty ones too. `instance` is what is served, or
    what is being built for the first time. `declared` is how many there are to be, `seen_at` the ledger's time.
    """

    ref: PartitionRef
    generation: str
    instance: str
    buckets: Sequence[BucketLoad]
    declared: int
    seen_at: int

    @property
    def warnings(self) -> list[str]:
        count = len(self.buckets)
        rows = sum(each.rows for each in self.buckets)
        found = [
            f"bucket {each.bucket} is skewed: {each.rows:,} rows, which one writer keeps up to date, are "
            f"{each.rows * count / rows:.1f} times the mean (more than {SKEW} times is too much)"
            for each in skewed(self.buckets, count)
        ]
        if count != self.declared:
            found.append(f"{count:,} buckets, and the project says {self.declared:,}")
        return found

    def as_dict(self) -> dict[str, Any]:
        return {
            "ref": str(self.ref),
            "generation": self.generation,
            "instance": self.instance,
            "buckets": [each._asdict() for each in self.buckets],
            "declared": self.declared,
            "warnings": self.warnings,
            "seen_at": self.seen_at,
        }


def bucket_view(setup: DocumentSetup, ledger: Ledger, generation: str | None) -> BucketView:
    """In a generation, or that which is promoted. Raises `UserError` when nothing is built, and nothing is in work."""
    name = generation_of(ledger, setup.ref, generation)
    job = ledger.unfinished_job(setup.ref, name)
    if ledger.checkpoint(setup.ref, name) is None and job is not None:
        part = job.part(setup.ref).part
        instance, count = part.instance, part.buckets
    else:
        checkpoint = built(ledger, setup.ref, name)
        instance, count = checkpoint.instance, checkpoint.buckets
    known = {each.bucket: each for each in ledger.bucket_loads(setup.ref, name, instance)}
    every = range(max([count, *(number + 1 for number in known)]))
    loads = [known.get(number, BucketLoad(number)) for number in every]
    return BucketView(setup.ref, name, instance, loads, setup.buckets, ledger.now())
