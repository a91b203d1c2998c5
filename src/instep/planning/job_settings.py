"""Settings of a job from its wants: read when it is planned, applied while it runs."""

from __future__ import annotations

from instep.domain.refs import PartitionRef
from instep.domain.settings import JobSettings, settings_in, together
from instep.entities.generations import waiting_wants
from instep.entities.setup import EntitySetup
from instep.ledger.ledger import Ledger


def wanted_settings(ledger: Ledger, ref: PartitionRef, generation: str) -> JobSettings:
    """The settings of the wants that a job on this partition serves; the oldest want first."""
    now = ledger.now()
    waiting = [each for each in waiting_wants(ledger, ref, generation) if each.can_begin(now)]
    return together(each.settings for each in sorted(waiting, key=lambda each: each.created_at))


def as_job_says(setup: EntitySetup, ledger: Ledger, job_id: str) -> EntitySetup:
    """The setup with a job's settings. Only a target with limits needs the query."""
    job = ledger.job(job_id) if setup.bounds_requests else None
    return setup if job is None else setup.bounded(settings_in(job.configuration, str(setup.ref)))
