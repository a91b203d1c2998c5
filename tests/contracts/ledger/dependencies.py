"""Dependencies: a job is planned with what it misses, and what is wanted is found however many wait."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from instep.domain.events import DependencyMissed, InstanceBuilding, InstanceRefreshing, WantCanceled, WantCreated
from instep.domain.instances import InstanceState
from instep.domain.jobs import JobPart, JobState
from instep.domain.refs import PartitionRef
from instep.domain.wants import WantState
from instep.errors import Conflict
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    START,
    VirtualClock,
    canonical_of,
    complete_all,
    end,
    fail,
    imported,
    lease_of,
    logged,
    new_part,
    part_of,
    plans,
    running,
    state_of_everything,
    status_of,
)
from tests.contracts.ledger.fixtures import Fixtures


def _missed(part: JobPart, ref: PartitionRef = OTHER, *, want: str = "up", as_of: int | None = None) -> NewPart:
    event = DependencyMissed(job="job", instances=(part.instance,), want=want, missing=(str(ref),), as_of=as_of)
    return NewPart(part, plans(1), (event,))


def _waiting(ledger: Ledger, *, fresh: bool = True) -> JobPart:
    """A running job on REF that waits for OTHER."""
    part = new_part(ledger, lease_of(ledger, "ann"), fresh=fresh)
    ledger.parts.plan("job", [_missed(part)])
    ledger.jobs.start("job")
    return part


def _ask(ledger: Ledger, *ids: str, refs: Sequence[PartitionRef] = (REF,), as_of: int | None = None) -> None:
    ledger.events.append([WantCreated(want=each, refs=tuple(map(str, refs)), as_of=as_of) for each in ids])


def _startable(ledger: Ledger, *refs: PartitionRef) -> list[str]:
    return [each.id for each in ledger.wants.startable(refs or (REF, OTHER))]


class Dependencies(Fixtures):
    @pytest.mark.parametrize("fresh", [True, False])
    def test_a_job_waits_from_its_beginning_for_missing_dependencies(self, ledger: Ledger, fresh: bool) -> None:
        _ask(ledger, "user")
        part = _waiting(ledger, fresh=fresh)
        begun = InstanceBuilding if fresh else InstanceRefreshing
        assert [type(each) for each in logged(ledger)[-2:]] == [begun, DependencyMissed]
        assert canonical_of(ledger).waits == ("up",)
        want = ledger.wants.get("up")
        assert want is not None
        assert (want.state, want.derivative_of, want.blocks) == (WantState.IDLE, "job", (part.instance,))
        other = imported(ledger, OTHER)
        assert (canonical_of(ledger).waits, canonical_of(ledger).inputs) == ((), (other.uuid,))
        complete_all(ledger, part)
        end(ledger, part)
        assert canonical_of(ledger).state is InstanceState.LIVE
        assert ledger.events.verify().differences == ()

    def test_parts_of_one_job_wait_for_each_other(self, ledger: Ledger) -> None:
        part, other = [new_part(ledger, lease_of(ledger, "ann", ref)) for ref in (REF, OTHER)]
        ledger.parts.plan("job", [_missed(part, as_of=START), NewPart(other, plans(1))])
        ledger.jobs.start("job")
        assert [canonical_of(ledger, each).state for each in (REF, OTHER)] == [InstanceState.BUILDING] * 2
        assert canonical_of(ledger).waits == ("up",)
        assert _startable(ledger) == [], "a worker works on it already"
        complete_all(ledger, other)
        end(ledger, other)
        assert (canonical_of(ledger).waits, canonical_of(ledger).inputs) == ((), (other.instance,))
        complete_all(ledger, part)
        assert end(ledger, part) is JobState.COMPLETED

    def test_a_dependency_built_in_between_is_not_waited_for(self, ledger: Ledger) -> None:
        other = imported(ledger, OTHER)
        _waiting(ledger)
        assert (canonical_of(ledger).waits, canonical_of(ledger).inputs) == ((), (other.uuid,))

    def test_a_job_that_would_wait_for_itself_is_not_planned(self, ledger: Ledger) -> None:
        part = new_part(ledger, lease_of(ledger, "ann"))
        before = state_of_everything(ledger, part)
        with pytest.raises(Conflict, match="wait for itself"):
            ledger.parts.plan("job", [_missed(part, REF)])
        assert state_of_everything(ledger, part) == before
        ledger.parts.plan("job", [NewPart(part, plans(1))])

    @pytest.mark.parametrize("fresh", [True, False])
    def test_a_part_whose_upstream_fails_ends_with_that_reason(self, ledger: Ledger, fresh: bool) -> None:
        _ask(ledger, "user", as_of=START + 1)
        part = _waiting(ledger, fresh=fresh)
        fail(ledger, _upstream(ledger), "upstream", error="disk full")
        error = f"{REF} waits for {OTHER}, which failed: the build of {OTHER} failed: disk full"
        user = ledger.wants.get("user")
        assert user is not None
        assert (user.state, user.error) == (WantState.UPSTREAM_FAILED, error)
        left = ledger.instances.get(part.instance)
        assert left is not None
        assert (left.state, left.error) == (InstanceState.FAILED if fresh else InstanceState.LIVE, error)
        events = ledger.events.rows()
        assert ledger.parts.finish("job", part, JobState.FAILED, worker_id="ann", error=error) is JobState.FAILED
        assert ledger.events.rows() == events, "the instance has failed already"
        assert (status_of(ledger).state, status_of(ledger).error) == (JobState.FAILED, error)
        assert ledger.events.verify().differences == ()

    # What is to be begun.

    def test_the_oldest_want_of_each_partition_is_startable(self, ledger: Ledger) -> None:
        assert _startable(ledger) == []
        _ask(ledger, "other", refs=[OTHER])
        _ask(ledger, "first", "second")
        _ask(ledger, "both", refs=[REF, OTHER])
        assert _startable(ledger) == ["other", "first"]
        assert _startable(ledger, REF) == ["first"]
        ledger.events.append([WantCanceled(want="first"), WantCanceled(want="other")])
        assert _startable(ledger) == ["second", "both"]
        ledger.events.append([WantCreated(want="next", refs=(str(REF),), generation="v2")])
        assert _startable(ledger, REF) == ["second", "next"]
        assert ledger.wants.startable([]) == []

    def test_wants_in_work_or_due_later_are_not_startable(self, ledger: Ledger, clock: VirtualClock) -> None:
        imported(ledger, OTHER)
        _ask(ledger, *(f"later {each}" for each in range(120)), refs=[REF, OTHER], as_of=START + 1)
        _ask(ledger, "now")
        _ask(ledger, *(f"much later {each}" for each in range(120)), as_of=START + 1_000)
        assert _startable(ledger) == ["now"]
        clock.advance(1)
        assert _startable(ledger) == ["later 0"]
        part = running(ledger, plans(1))
        assert _startable(ledger, REF) == []
        complete_all(ledger, part)
        end(ledger, part)
        assert _startable(ledger, REF) == ["later 0"], "of the other partition, and so for both"
        clock.advance(999)
        ledger.events.append([WantCanceled(want=f"later {each}") for each in range(120)])
        assert _startable(ledger) == ["much later 0"]


def _upstream(ledger: Ledger) -> JobPart:
    """A job that builds what is waited for."""
    lease = lease_of(ledger, "ann", OTHER, job_id="upstream")
    part = part_of(lease, instance=new_part(ledger, lease).instance)
    ledger.parts.plan("upstream", [NewPart(part, plans(1))])
    return part
