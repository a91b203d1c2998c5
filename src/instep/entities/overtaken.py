"""Whether more was written into an index than its checkpoint says."""

from __future__ import annotations

from typing import Protocol

from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger


class _Fenced(Protocol):
    def epoch(self, physical: str) -> int: ...


def overtaken(target: _Fenced, ledger: Ledger, checkpoint: Checkpoint) -> bool:
    """Whether a job that came after the checkpoint's began to write into its index, and was not promoted: a refresh
    that has not ended, or a rebuild that kept the served index up to date and has failed.
    """
    job, latest = ledger.jobs.get(checkpoint.job_id), ledger.jobs.page(refs=[checkpoint.ref], limit=1)
    if job is None or [each.id for each in latest] == [job.id]:
        return False  # One that was killed before it was stored has fenced the index, and written nothing.
    return target.epoch(checkpoint.physical) > job.part(checkpoint.ref).part.epoch
