"""What was said of a job by those who asked for it: while it is planned, and while it is worked on."""

from __future__ import annotations

from instep.domain.refs import PartitionRef
from instep.domain.settings import JobSettings, settings_in, together
from instep.entities.generations import waiting_wants
from instep.entities.setup import EntitySetup
from instep.ledger.ledger import Ledger


def wanted_settings(ledger: Ledger, ref: PartitionRef, generation: str) -> JobSettings:
    """Of the wants that a job on this partition is made for, those of who waits longest first."""
    now = ledger.now()
    waiting = [each for each in waiting_wants(ledger, ref, generation) if each.can_begin(now)]
    return together(each.settings for each in sorted(waiting, key=lambda each: each.created_at))


def as_job_says(setup: EntitySetup, ledger: Ledger, job_id: str) -> EntitySetup:
    """The setup as a job has it written. Only a target that has bounds is worth the question."""
    job = ledger.job(job_id) if setup.bounds_requests else None
    return setup if job is None else setup.bounded(settings_in(job.configuration, str(setup.ref)))
