"""How much there is of everything."""

from __future__ import annotations

from collections import Counter, defaultdict

from instep.domain.waves import GIVEN_UP, SKIPPED
from instep.ledger.figures import EntityFigures, Figures
from tests.simulator.model.tables import JobRow, Tables


def read(tables: Tables) -> Figures:
    found: defaultdict[str, EntityFigures] = defaultdict(EntityFigures)
    live = [job for job in tables.jobs.values() if not job.state.ended]
    for job in live:
        _read_parts(job, found)
    for slice_row in tables.slices.values():
        if not tables.jobs[slice_row.job_id].state.ended:
            found[slice_row.ref.entity].attempts += slice_row.attempts
    for ref, lease in tables.leases.items():
        if lease.job_id is not None:
            found[ref.entity].lease(lease.since, lease.expires_at)
    for (ref, generation), checkpoint in tables.checkpoints.items():
        if tables.state.promoted.get(str(ref)) == generation:
            found[ref.entity].checkpoint(checkpoint.watermark)
    for (ref, generation), records in tables.failures.items():
        found[ref.entity].failures += sum(each.stage != SKIPPED for each in records.values())
        given_up = [each.failed_at for each in records.values() if each.stage == GIVEN_UP]
        if given_up and tables.state.promoted.get(str(ref)) == generation:
            found[ref.entity].given_up(min(given_up))
    for ref in tables.listing_problems:
        found[ref.entity].unlisted = True
    wants = Counter(each.state for each in tables.state.wants.values() if not each.state.ended)
    return Figures(tables.now(), dict(Counter(job.state for job in live)), dict(wants), dict(found))


def _read_parts(job: JobRow, found: defaultdict[str, EntityFigures]) -> None:
    for ref, part in job.parts.items():
        figures = found[ref.entity]
        for state, number in part.slices.items():
            if number:
                figures.slices[state] = figures.slices.get(state, 0) + number
        figures.units += part.units
        figures.counts += part.counts
