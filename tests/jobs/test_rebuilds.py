"""When a rebuild is served in place of what is served now, and when it is tried again."""

from __future__ import annotations

import pytest

from instep.domain.events import DependencyMissed, InstanceCreated
from instep.domain.instances import InstanceState, Reason
from instep.domain.jobs import JobState
from instep.domain.refs import PartitionRef
from instep.domain.wants import WantState
from instep.entities.plan_request import PlanOptions
from instep.errors import UserError
from instep.jobs.finish import SWEEP_SECONDS
from tests.jobs.quiet import REF, Quiet, built, indexed, missing
from tests.simulator.documents import Poison

ALL = set(range(1, 13))
#: Those that a wrong transform fails on: a third.
THIRD = {3, 6, 9, 12}


def refused(wrong: str = "4 of 12 documents") -> Quiet:
    """A rebuild by a transform that fails on a third of the documents was refused."""
    world = built()
    before = world.served
    world.transform(2, wrong=True)
    result = world.run_once()
    assert (result.state, result.promoted) == (JobState.FAILED, False)
    assert any(wrong in note for note in result.notes)
    assert world.served == before
    return world


def test_a_transform_that_now_fails_on_a_third_of_the_documents_replaces_nothing() -> None:
    world = refused()
    assert indexed(world) == ALL
    assert (world.current.state, world.current.reason) == (InstanceState.MISSING, Reason.FAILURE)
    failed = world.ledger.instances.get(world.current.previous or "")
    assert failed is not None
    assert failed.state is InstanceState.FAILED
    assert "4 of 12 documents" in (failed.error or "")
    world.sound()


@pytest.mark.parametrize("edited", [(), (1, 2, 4, 5)], ids=["all were touched", "a third was touched"])
def test_a_failing_rebuild_is_not_promoted_though_documents_changed(edited: tuple[int, ...]) -> None:
    world = built()
    before = world.served
    world.edit(*edited)
    world.transform(2, wrong=True)
    for _ in range(3):
        assert not world.run_once(PlanOptions(retry_failures=True)).promoted, (
            "what failed once is not what is known to fail"
        )
    assert world.served == before


def test_a_refused_rebuild_is_held_back_until_something_changes() -> None:
    world = refused()
    jobs = len(world.parts())
    for _ in range(3):
        result = world.run_once()
        assert (result.state, result.state_name) == (None, "HELD_BACK")
        assert any("4 of 12 documents" in note for note in result.notes)
    world.edit(1)  # Nothing that would turn the scale.
    assert world.run_once().state is None
    assert len(world.parts()) == jobs, "it was not built again"
    assert world.ledger.failures.count(REF) == 4


def test_a_transform_that_is_repaired_is_tried_at_once() -> None:
    world = refused()
    world.transform(3)
    assert world.run_once().promoted
    assert indexed(world) == ALL
    assert world.run_once().state_name == "UP_TO_DATE"
    world.sound()


def test_documents_that_are_repaired_turn_the_scale() -> None:
    world = built()
    world.edit(*THIRD, poison=Poison.FAILS)
    world.edit(1, 2, 4, 5)  # So that most are not served as they are.
    world.taint()
    assert not world.run_once().promoted
    world.edit(3)
    assert world.run_once().state is None
    world.edit(6, 9, 12)
    assert world.run_once().promoted
    assert indexed(world) == ALL
    world.sound()


@pytest.mark.parametrize("options", [PlanOptions(retry_failures=True), PlanOptions(full_refresh=True)], ids=str)
def test_a_refused_rebuild_is_retried_on_request(options: PlanOptions) -> None:
    world = refused()
    jobs = len(world.parts())
    assert world.run_once(options).state is JobState.FAILED
    assert len(world.parts()) == jobs + 1
    assert world.run_once().state is None


@pytest.mark.parametrize("by", ["run", "worker"])
def test_a_want_has_it_tried_once_and_fails_with_it(by: str) -> None:
    world = refused()
    jobs = len(world.parts())
    world.want("a")
    for _ in range(3):
        if by == "run":
            world.run_once()
        else:
            world.work()
        assert len(world.parts()) == jobs + 1, "a worker does not go on building"
    assert world.wanted("a").state is WantState.FAILED
    assert "4 of 12 documents" in (world.wanted("a").error or "")
    world.sound()


def test_a_job_that_waits_for_it_does_not_have_it_tried() -> None:
    """Without a request: each run of a dependent would rebuild it in vain. The run fails with the reason."""
    world = refused()
    jobs = len(world.parts())
    world.ledger.events.append([InstanceCreated(ref="Page@global", reason=Reason.FIRST)])
    page = world.ledger.instances.canonical(PartitionRef("Page"))
    assert page is not None
    missed = DependencyMissed(job="of Page", instances=(page.uuid,), want="a", missing=(str(REF),))
    world.ledger.events.append([missed])
    assert world.run_once().state_name == "HELD_BACK"
    world.work()
    assert len(world.parts()) == jobs
    assert world.wanted("a").state is WantState.CANCELED
    assert "4 of 12 documents" in (world.wanted("a").error or "")


@pytest.mark.parametrize("change", ["taint", "full refresh", "transform"])
def test_documents_that_are_known_to_fail_hold_no_rebuild_off(change: str) -> None:
    """What is served of them is of versions that are gone. It is not served any more, and they stay in the list."""
    world = built()
    world.edit(*THIRD, poison=Poison.FAILS)
    assert world.run_once().state is JobState.FAILED, "every one that was read has failed"
    assert indexed(world) == ALL, "a refresh leaves what was there"
    before = world.served
    if change == "taint":
        world.taint()
    elif change == "transform":
        world.transform(2)
    result = world.run_once(PlanOptions(full_refresh=change == "full refresh"))
    assert (result.state, result.promoted) == (JobState.COMPLETED_WITH_ERRORS, True)
    assert world.served != before
    assert indexed(world) == ALL - THIRD
    assert world.ledger.failures.count(REF) == 4
    assert world.run_once().state_name == "UP_TO_DATE"
    world.sound()


def test_documents_that_were_never_indexed_hold_no_rebuild_off_though_all_were_touched() -> None:
    world = Quiet()
    world.edit(*THIRD, poison=Poison.FAILS)
    assert world.run_once().promoted
    world.edit(*(ALL - THIRD))
    world.edit(*THIRD, poison=Poison.FAILS)
    world.taint()
    assert world.run_once().promoted
    assert indexed(world) == ALL - THIRD


def test_documents_that_the_source_has_no_more_hold_no_rebuild_off() -> None:
    world = built()
    missing(world, *THIRD)
    world.taint()
    assert world.run_once().promoted
    assert indexed(world) == ALL - THIRD


def test_an_empty_source_replaces_nothing() -> None:
    world = built()
    before = world.served
    missing(world, *ALL)
    world.taint()
    for _ in range(2):
        with pytest.raises(UserError, match=r"the source is empty, and 12 documents are indexed\.\n.*--allow-empty"):
            world.run_once()
    assert world.served == before


def test_a_build_in_which_everything_fails_replaces_nothing() -> None:
    world = built()
    before = world.served
    world.edit(poison=Poison.FAILS)
    world.taint()
    assert not world.run_once().promoted
    assert world.run_once().state_name == "HELD_BACK"
    assert world.served == before


@pytest.mark.parametrize("why", ["taint", "transform"])
def test_a_rebuild_that_would_leave_most_documents_out_is_not_made_unasked(why: str) -> None:
    """A folder that is not mounted, say: a refresh would not delete them either."""
    world = built(150)
    before = world.served
    missing(world, *range(2, 120))
    if why == "taint":
        world.taint()
    else:
        world.transform(2)
    with pytest.raises(UserError, match="118 of 150 documents are gone") as caught:
        world.run_once()
    assert "--allow-deletes" in (caught.value.hint or "")
    assert world.served == before
    assert world.run_once(PlanOptions(allow_deletes=True)).promoted
    assert len(indexed(world)) == 32


def test_a_rebuild_from_an_incomplete_listing_is_not_promoted() -> None:
    world = built()
    before = world.served
    missing(world, 2)
    world.source.problems.append("folder/b: permission denied")
    assert world.run_once().state is None, "a refresh goes on, and deletes nothing"
    world.taint()
    with pytest.raises(UserError, match="folder/b: permission denied"):
        world.run_once()
    assert (world.served, len(world.parts())) == (before, 1)
    world.source.problems.clear()
    assert world.run_once().promoted


def test_a_project_says_which_share_has_to_go_in() -> None:
    world = built()
    world.transform(2, wrong=True)
    world.needed = 0.7
    assert any("at least 70% must be indexed" in note for note in world.run_once().notes)
    world.needed = 0.6
    assert world.run_once().promoted, "it is not held back any more"
    assert indexed(world) == ALL - THIRD


@pytest.mark.parametrize("by", ["run", "worker"])
def test_a_replaced_index_goes_an_hour_later_though_nothing_changes_any_more(by: str) -> None:
    world = built()
    (before,) = world.target.indexes
    world.transform(2)
    assert world.run_once().promoted
    served = world.target.served(REF.entity)
    assert set(world.target.indexes) == {before, served}, "readers may have it open"
    for _ in range(5):
        world.rest(SWEEP_SECONDS / 4)
    if by == "run":
        assert world.run_once().state is None
    else:
        world.watch()
    assert set(world.target.indexes) == {served}
    world.sound()
