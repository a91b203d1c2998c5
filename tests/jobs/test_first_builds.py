"""A first build is served only if something went in, unless there was nothing to go in; what became empty may be
emptied by who says so.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from instep.domain.instances import InstanceState
from instep.domain.jobs import JobState
from instep.domain.refs import PartitionRef
from instep.domain.settings import JobSettings
from instep.domain.status import IndexState
from instep.domain.wants import WantState
from instep.entities.plan_request import PlanOptions
from instep.errors import UserError
from instep.requests.wants import make_want
from tests.jobs.quiet import REF, Quiet, built, indexed, missing
from tests.simulator.documents import Poison

ALL = set(range(1, 5))


def failed() -> Quiet:
    """All documents of the first build failed."""
    world = Quiet(len(ALL))
    world.edit(poison=Poison.FAILS)
    world.want("a")
    return world


def without_text() -> Quiet:
    """No document has anything to index."""
    world = Quiet(len(ALL))
    for uri, document in list(world.source.documents.items()):
        empty = type(document)(uri, document.version + 1, document.size, ())
        world.source.documents[uri] = world.source.versions[uri, str(empty.version)] = empty
    world.want("a")
    return world


@pytest.mark.parametrize(
    ("made", "why"),
    [(failed, "every document failed, so nothing is served"), (without_text, "nothing was written of 4 documents")],
    ids=["failed", "without text"],
)
@pytest.mark.parametrize("generation", [None, "v2"], ids=["unnamed", "named"])
def test_one_that_wrote_nothing_is_not_served(made: Callable[[], Quiet], why: str, generation: str | None) -> None:
    world = made()
    result = world.run_once(PlanOptions(generation=generation))
    assert (result.state, result.promoted) == (JobState.FAILED, False)
    assert any(why in note for note in result.notes)
    assert world.ledger.checkpoints.get(REF, generation or "") is None
    assert world.served is None
    assert world.target.indexes == {}, "what it had begun is dropped"
    if generation is None:
        assert world.wanted("a").state is WantState.FAILED
        said = world.reported_status
        assert (said["state"], why in said["error"]) == (IndexState.ERROR, True)
    world.sound()


def test_a_failed_first_build_is_held_back_until_something_changes() -> None:
    world = failed()
    world.run_once()
    for _ in range(2):
        result = world.run_once()
        assert (result.state, result.state_name) == (None, "HELD_BACK")
        assert any("all of 4 documents failed" in note for note in result.notes)
    world.edit(3)
    result = world.run_once()
    assert (result.state, result.promoted) == (JobState.COMPLETED_WITH_ERRORS, True)
    assert indexed(world) == {3}
    world.sound()


@pytest.mark.parametrize("how", ["asked", "wanted", "mended"])
def test_a_failed_first_build_is_retried_on_request_and_after_a_change(how: str) -> None:
    world = Quiet(len(ALL))
    for number in ALL:
        if number != 3:
            missing(world, number)
    world.transform(1, wrong=True)
    assert world.run_once().state is JobState.FAILED
    assert world.run_once().state is None
    if how == "wanted":
        world.want("b")
    if how == "mended":
        world.transform(2)
    result = world.run_once(PlanOptions(retry_failures=how == "asked"))
    assert result.promoted is (how == "mended")
    assert result.state is not None, "it was tried"


def test_an_empty_source_is_no_failure() -> None:
    world = Quiet(len(ALL))
    world.source.empty = True
    result = world.run_once()
    assert (result.state, result.problem) == (None, None)
    assert world.served is None


def test_an_empty_rebuild_needs_allow_empty() -> None:
    world = built(len(ALL))
    before = world.served
    missing(world, *ALL)
    with pytest.raises(UserError, match=r"the source is empty, and 4 documents are indexed\.\n.*--allow-empty"):
        world.run_once(PlanOptions(full_refresh=True, allow_deletes=True))
    assert world.served == before
    assert world.run_once(PlanOptions(full_refresh=True, allow_deletes=True, allow_empty=True)).promoted
    assert indexed(world) == set()
    assert world.current.state is InstanceState.LIVE
    again = world.run_once(PlanOptions(full_refresh=True))
    assert again.promoted, "what is empty may be built empty again, unasked"
    assert world.run_once().state_name == "UP_TO_DATE"
    world.sound()


def test_an_empty_build_for_a_want_needs_allow_empty_of_the_want() -> None:
    world = built(len(ALL))
    missing(world, *ALL)
    world.taint()
    make_want(world.ledger, "a", [PartitionRef("Document")], settings=JobSettings(allow_empty=True))
    world.work()
    assert indexed(world) == set()
    assert world.wanted("a").state is WantState.SUCCESSFUL
    world.sound()


def test_a_build_in_which_all_failed_is_not_empty() -> None:
    world = built(len(ALL))
    before = world.served
    world.edit(poison=Poison.FAILS)
    result = world.run_once(PlanOptions(full_refresh=True, allow_empty=True))
    assert (result.promoted, world.served) == (False, before)


def test_a_source_that_cannot_be_listed_is_never_empty() -> None:
    world = built(len(ALL))
    missing(world, *ALL)
    world.source.problems.append("its folder cannot be read")
    with pytest.raises(UserError, match="could not be listed"):
        world.run_once(PlanOptions(full_refresh=True, allow_empty=True))
