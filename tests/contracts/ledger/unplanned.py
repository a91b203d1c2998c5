"""Jobs that are stopped before they were planned."""

from __future__ import annotations

import pytest

from instep.domain.jobs import JobState
from instep.errors import Conflict, Fenced
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart
from tests.contracts.ledger.building import REF, job_of, lease_of, new_part, plans, register
from tests.contracts.ledger.fixtures import Fixtures


class Unplanned(Fixtures):
    def test_a_job_that_was_stopped_before_it_was_planned_does_nothing_more(self, ledger: Ledger) -> None:
        register(ledger, "ann")
        ledger.jobs.begin("job", "ann", {})
        assert ledger.jobs.request_stop("job", "by the user") is JobState.STOPPED
        with pytest.raises(Conflict, match="before it was planned"):
            ledger.leases.acquire(REF, "job", "ann")
        with pytest.raises(Conflict, match="before it was planned"):
            ledger.jobs.start("job")
        assert (job_of(ledger).state, job_of(ledger).error) == (JobState.STOPPED, "by the user")
        assert lease_of(ledger, "ann", job_id="other").epoch == 1

    def test_a_job_that_is_stopped_while_it_is_planned_is_not_planned(self, ledger: Ledger) -> None:
        lease = lease_of(ledger, "ann")
        part = new_part(ledger, lease)
        ledger.jobs.request_stop("job")
        with pytest.raises((Conflict, Fenced)):
            ledger.parts.plan("job", [NewPart(part, plans(1))])
        assert job_of(ledger).parts == ()
        assert lease_of(ledger, "bob", job_id="other").epoch == lease.epoch + 1
