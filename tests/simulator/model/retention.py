"""What is forgotten of jobs that ended long ago."""

from __future__ import annotations

from instep.ledger.retention import Forgotten, Gone
from tests.simulator.model.tables import JobRow, PartRow, SliceRow, Tables


def forgettable(tables: Tables, before: int) -> Gone:
    old = _old(tables, before)
    return Gone(len(old), sum(len(_slices(tables, job)) for job in old))


def forget(tables: Tables, before: int, limit: int) -> Gone:
    left, gone, old = limit, 0, _old(tables, before)[:50]
    for job in old:
        some = _slices(tables, job)[:left]
        for each in some:
            del tables.slices[each.id]
            tables.part_of(each).slices[each.state] -= 1
        left -= len(some)
        if left == 0:
            return Gone(gone, limit, more=True)
        _drop(tables, job)
        gone += 1
    return Gone(gone, limit - left, more=len(old) == 50)


def oldest(tables: Tables, before: int) -> int:
    young = [job for job in tables.jobs.values() if job.finished_at is None or job.finished_at >= before]
    return min([before, *(job.created_at for job in young)])


def due(tables: Tables, every: int) -> bool:
    last, now = tables.forgotten.get(""), tables.now()
    if last is not None and now - every < last.at <= now:
        return False
    tables.forgotten[""] = Forgotten(now, 0, 0)
    return True


def _slices(tables: Tables, job: JobRow) -> list[SliceRow]:
    return [each for each in tables.slices.values() if each.job_id == job.id]


def _old(tables: Tables, before: int) -> list[JobRow]:
    found = [
        job
        for job in tables.jobs.values()
        if job.state.ended
        and job.created_at < before
        and job.finished_at is not None
        and job.finished_at < before
        and not any(_is_needed(tables, job, each) for each in job.parts.values())
    ]
    return sorted(found, key=lambda job: (job.created_at, job.id))


def _is_needed(tables: Tables, job: JobRow, row: PartRow) -> bool:
    ref, _ = row.key
    of_it = [other.parts[ref] for other in tables.jobs.values() if ref in other.parts]
    newest = max(each.part.epoch for each in of_it if each.key == row.key)
    served = tables.checkpoints.get(row.key)
    built = served is not None and row.part.fresh and served.instance == row.part.instance
    named = served is not None and served.job_id == job.id
    return row.state is None or row.part.epoch == newest or built or named


def _drop(tables: Tables, job: JobRow) -> None:
    assert job.finished_at is not None
    for ref, row in job.parts.items():
        known = tables.forgotten.get(str(ref), Forgotten(0, 0, 0))
        target = row.part.target or 0
        tables.forgotten[str(ref)] = Forgotten(
            max(known.at, job.finished_at), max(known.epoch, row.part.epoch), max(known.target, target)
        )
    del tables.jobs[job.id]
