"""Checkpoints by their keys: of partitions that are served, and of the slices of those that are being built."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from instep.answers.answer import Answer
from instep.domain.jobs import Job, PartStatus
from instep.domain.refs import CheckpointKey, PartitionRef, Scope
from instep.ledger import checkpoints as stored
from instep.ledger.ledger import Ledger

#: A checkpoint of a whole partition.
COMPLETE = "complete"


class Checkpoint(Answer):
    """A checkpoint of a partition, or the progress of a slice of an open part. `state` is `complete` for a partition;
    `watermark` is the time up to which it is complete, in µs. `version`: the version that was read of a table that
    keeps its versions.
    """

    key: str
    generation: str
    state: str
    watermark: int | None
    version: int | None = None
    job: str
    instance: str
    error: str | None = None


def checkpoints(
    ledger: Ledger, entity: str, scopes: Collection[Scope], *, only: bool, slices: int = 1_000
) -> list[Checkpoint]:
    """The checkpoints of one entity, by scope: of all its partitions that are served, and of these scopes; with `only`,
    of these alone. At most so many `slices` of each open part.
    """
    served = [each for each in ledger.checkpoints.of_entity(entity) if not only or each.ref.scope in scopes]
    refs = sorted({each.ref for each in served} | {PartitionRef(entity, scope) for scope in scopes})
    views = []
    for ref in refs:
        mine = [each for each in served if each.ref == ref]
        views += [_whole(ledger, each) for each in mine]
        for generation in sorted({"", *(each.generation for each in mine)}):
            views += _open(ledger, ref, generation, slices)
    return views


def _whole(ledger: Ledger, checkpoint: stored.Checkpoint) -> Checkpoint:
    seen = ledger.seen.get(checkpoint)
    return Checkpoint(
        key=str(CheckpointKey(checkpoint.ref)),
        generation=checkpoint.generation,
        state=COMPLETE,
        watermark=checkpoint.watermark * 1_000,
        version=seen.version.number if seen and seen.version else None,
        job=checkpoint.job_id,
        instance=checkpoint.instance,
    )


def _open(ledger: Ledger, ref: PartitionRef, generation: str, limit: int) -> Iterable[Checkpoint]:
    """The slices of the part that is open, if one is, under their own keys."""
    job = ledger.jobs.unfinished(ref, generation)
    status = _part(job, ref) if job else None
    if job is None or status is None:
        return
    count = sum(status.slices.values())
    for place, each in enumerate(ledger.slices.of_part(job.id, ref, limit=limit)):
        yield Checkpoint(
            key=str(CheckpointKey(ref, place, count)),
            generation=generation,
            state=each.state.lower(),
            watermark=None,
            job=job.id,
            instance=status.part.instance,
            error=each.error,
        )


def _part(job: Job, ref: PartitionRef) -> PartStatus | None:
    return next((each for each in job.parts if each.part.ref == ref), None)
