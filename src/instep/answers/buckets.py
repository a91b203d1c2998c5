"""Buckets of documents: content of each, latency of its changes, and which one holds too much."""

from __future__ import annotations

from collections.abc import Sequence

from instep.answers.answer import Answer, Ref
from instep.domain.buckets import SKEW, BucketLoad, skewed
from instep.entities.documents.setup import DocumentSetup
from instep.entities.generations import built, generation_of
from instep.ledger.ledger import Ledger


class Bucket(Answer):
    """Content of a bucket, and the latency of its changes in ms: the mean over `slices`, the longest, and the time in
    work. `pending` changes are planned, and not durable yet.
    """

    bucket: int
    documents: int
    rows: int
    bytes: int
    slices: int
    latency: int | None
    longest: int | None
    working: int | None
    pending: int
    pending_since: int | None


class Buckets(Answer):
    """All buckets of one generation of a partition."""

    ref: Ref
    generation: str
    instance: str
    buckets: tuple[Bucket, ...]
    declared: int
    warnings: tuple[str, ...]
    seen_at: int


def buckets(setups: Sequence[DocumentSetup], ledger: Ledger, generation: str | None) -> list[Buckets]:
    """The buckets of the partitions that are built, or in work, in a generation or the promoted one. Raises `UserError`
    when there are none.
    """
    found = [
        each for setup in setups if (each := _buckets(setup, ledger, generation_of(ledger, setup.ref, generation)))
    ]
    if setups and not found:
        built(ledger, setups[0].ref, generation_of(ledger, setups[0].ref, generation))
    return found


def _buckets(setup: DocumentSetup, ledger: Ledger, generation: str) -> Buckets | None:
    checkpoint, job = ledger.checkpoints.get(setup.ref, generation), ledger.jobs.unfinished(setup.ref, generation)
    if checkpoint is not None:
        instance, count = checkpoint.instance, checkpoint.buckets
    elif job is not None:
        part = job.part(setup.ref).part
        instance, count = part.instance, part.buckets
    else:
        return None
    known = {each.bucket: each for each in ledger.documents.bucket_loads(setup.ref, generation, instance)}
    every = range(max([count, *(number + 1 for number in known)]))
    loads = [known.get(number, BucketLoad(number)) for number in every]
    return Buckets(
        ref=setup.ref,
        generation=generation,
        instance=instance,
        buckets=tuple(map(Bucket.model_validate, loads)),
        declared=setup.buckets,
        warnings=tuple(_warnings(loads, setup.buckets)),
        seen_at=ledger.now(),
    )


def _warnings(loads: Sequence[BucketLoad], declared: int) -> list[str]:
    count = len(loads)
    rows = sum(each.rows for each in loads)
    found = [
        f"bucket {each.bucket} is skewed: {each.rows:,} rows, which one writer keeps up to date, are "
        f"{each.rows * count / rows:.1f} times the mean (more than {SKEW} times is too much)"
        for each in skewed(loads, count)
    ]
    if count != declared:
        found.append(f"{count:,} buckets, and the project says {declared:,}")
    return found
