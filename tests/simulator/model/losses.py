"""What jobs have lost of indexes."""

from __future__ import annotations

from instep.domain.jobs import JobPart
from instep.domain.promotion_rules import Loss, PartLoss, lost_by
from instep.domain.refs import PartitionRef
from tests.simulator.model.leases import demand_epoch
from tests.simulator.model.tables import Tables


def count(tables: Tables, part: JobPart, loss: Loss, *, job_id: str) -> None:
    demand_epoch(tables, part, job_id)
    tables.jobs[job_id].parts[part.ref].lost += loss


def lately(tables: Tables, ref: PartitionRef, generation: str, window: int) -> Loss:
    oldest = tables.now() - window
    found = [
        row
        for job in tables.jobs.values()
        for row in job.parts.values()
        if row.key == (ref, generation) and (row.finished_at is None or row.finished_at > oldest)
    ]
    found.sort(key=lambda row: row.part.epoch)
    return lost_by(PartLoss(row.lost, row.allowed) for row in found)
