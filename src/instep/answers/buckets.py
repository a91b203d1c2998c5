"""Buckets of documents: what each holds, how long its changes take, and which one holds too much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from instep.domain.buckets import SKEW, BucketLoad, skewed
from instep.domain.refs import PartitionRef
from instep.entities.documents.setup import DocumentSetup
from instep.entities.generations import built, generation_of
from instep.ledger.ledger import Ledger


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


def bucket_views(setups: Sequence[DocumentSetup], ledger: Ledger, generation: str | None) -> list[BucketView]:
    """In a generation, or that which is promoted; of partitions of which something is built, or in work. Raises
    `UserError` when there are none such.
    """
    found = [view for setup in setups if (view := _view(setup, ledger, generation_of(ledger, setup.ref, generation)))]
    if setups and not found:
        built(ledger, setups[0].ref, generation_of(ledger, setups[0].ref, generation))
    return found


def _view(setup: DocumentSetup, ledger: Ledger, generation: str) -> BucketView | None:
    checkpoint, job = ledger.checkpoint(setup.ref, generation), ledger.unfinished_job(setup.ref, generation)
    if checkpoint is not None:
        instance, count = checkpoint.instance, checkpoint.buckets
    elif job is not None:
        part = job.part(setup.ref).part
        instance, count = part.instance, part.buckets
    else:
        return None
    known = {each.bucket: each for each in ledger.bucket_loads(setup.ref, generation, instance)}
    every = range(max([count, *(number + 1 for number in known)]))
    loads = [known.get(number, BucketLoad(number)) for number in every]
    return BucketView(setup.ref, generation, instance, loads, setup.buckets, ledger.now())
