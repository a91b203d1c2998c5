"""May a finished instance be served? Live data stays unless what replaces it is proved better."""

from __future__ import annotations

from instep.domain.jobs import Job, JobPart, JobState
from instep.ledger.port import Ledger
from instep.service.setup import EntitySetup

#: A rebuild is served in place of what is served now only if this share of its documents went in.
PROMOTION_RATIO = 0.95


def promotion_problem(setup: EntitySetup, part: JobPart, ledger: Ledger, job: Job, state: JobState) -> str | None:
    """Why the instance must not be served, or None. Counts are compared by the one counting function."""
    _, recorded, _ = ledger.totals(part.instance)
    stored = setup.target.rows(part.physical)
    if stored != recorded:
        return (
            f"the target holds {stored:,} rows where {recorded:,} were recorded; not served. "
            "Something else writes to this index, or it was changed behind Instep's back: run with --full-refresh"
        )
    if not part.fresh:
        return None
    replaces = ledger.checkpoint(part.ref) is not None
    if replaces and stored == 0:
        return "the rebuild is empty; what was served stays"
    if state is JobState.FAILED and replaces:
        return "every document failed; what was served stays"
    good = 1 - job.counts.failed / job.counts.read if job.counts.read else 1.0
    if replaces and good < PROMOTION_RATIO:
        return (
            f"only {good:.1%} of the documents went in (at least {PROMOTION_RATIO:.0%} needed); what was served stays"
        )
    return None
