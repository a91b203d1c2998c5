"""Wants, taints and times to live, through real runs and workers: what was asked for is built, and only that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from instep.domain.events import InstanceTainted, WantCreated
from instep.domain.instances import InstanceState, Reason
from instep.domain.jobs import JobState
from instep.domain.refs import PartitionRef
from instep.domain.wants import WantState
from instep.entities.plan_request import PlanOptions
from tests.doubles.through import replaced

from . import corpus
from .conftest import Location
from .test_many_workers import Gone, Site, Still, _gone

REF = PartitionRef("Document")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    place = Location(tmp_path / "project", tmp_path / "docs")
    corpus.write(place.docs, range(12))
    place.declare(entity="buckets: 3")
    return Site(place)


def want(site: Site, name: str, *, fresh_within: int | None = None) -> None:
    site.ledger.events.append([WantCreated(want=name, refs=(str(REF),), fresh_within=fresh_within, by="ann")])


def state(site: Site, name: str) -> WantState:
    found = site.ledger.wants.get(name)
    assert found is not None
    return found.state


def taint(site: Site) -> str:
    current = site.ledger.instances.canonical(REF)
    assert current is not None
    site.ledger.events.append([InstanceTainted(instance=current.uuid, why="a bad batch", by="ann")])
    return current.uuid


def intact(site: Site) -> None:
    """The index is right, and so are the ledger's books."""
    assert site.place.wrong() == ""
    assert site.ledger.events.verify().differences == ()


def test_many_wants_are_one_build_by_any_worker(site: Site) -> None:
    for name in ("w1", "w2", "w3", "w4"):
        want(site, name)
        assert state(site, name) is WantState.IDLE
    site.serve()
    assert {state(site, name) for name in ("w1", "w2", "w3", "w4")} == {WantState.SUCCESSFUL}
    assert len(site.ledger.jobs.newest()) == 1
    current = site.ledger.instances.canonical(REF)
    assert current is not None
    assert (current.state, current.reason, current.job) == (InstanceState.LIVE, Reason.FIRST, site.only_job().id)
    intact(site)


def test_a_want_of_something_fresh_is_satisfied_by_looking_even_if_nothing_changed(site: Site) -> None:
    site.run()
    site.clock.sleep(3600)
    want(site, "any")
    assert state(site, "any") is WantState.SUCCESSFUL, "what is Live satisfies a plain want at once"
    want(site, "fresh", fresh_within=60_000)
    assert state(site, "fresh") is WantState.IDLE
    (result,) = site.run()
    assert result.state is JobState.COMPLETED
    assert (result.counts.read, result.promoted) == (0, True)
    assert state(site, "fresh") is WantState.SUCCESSFUL
    assert [each.state for each in site.run()] == [None], "nothing is left to do"
    intact(site)


@pytest.mark.parametrize("built", [True, False], ids=["refresh", "first build"])
def test_what_comes_between_the_look_and_the_job_is_not_said_to_be_there(site: Site, built: bool) -> None:
    if built:
        site.run()
        (site.place.docs / "new.md").write_text("something new")
    looked: list[int] = []

    def slow(real: Callable[..., Any], *args: Any) -> Any:
        looked.append(site.clock.now())
        site.clock.sleep(60)
        (site.place.docs / "late.md").write_text("too late for this look")
        want(site, "with what came late", fresh_within=0)
        return real(*args)

    site.run(ledger=replaced(site.ledger, {"jobs.begin": slow}))
    checkpoint = site.ledger.checkpoints.get(REF)
    assert checkpoint is not None
    assert checkpoint.watermark <= looked[0]
    assert state(site, "with what came late") is WantState.IDLE
    site.run()
    assert state(site, "with what came late") is WantState.SUCCESSFUL
    intact(site)


def test_a_tainted_instance_is_rebuilt_beside_the_served_one_and_wants_follow(site: Site) -> None:
    site.run()
    before = taint(site)
    want(site, "w")
    assert state(site, "w") is WantState.IDLE
    served = site.ledger.checkpoints.get(REF)
    assert served is not None
    assert served.instance == before, "readers keep what there is until there is something better"
    (result,) = site.run()
    assert result.plan.found.why == ["the served index was tainted"]
    assert result.counts.written == 12
    old, new = site.ledger.instances.get(before), site.ledger.instances.canonical(REF)
    assert old is not None
    assert new is not None
    assert (old.state, new.previous, new.reason) == (InstanceState.TAINTED, before, Reason.TAINT)
    served = site.ledger.checkpoints.get(REF)
    assert served is not None
    assert served.instance == new.uuid
    assert state(site, "w") is WantState.SUCCESSFUL
    intact(site)


def test_past_its_time_to_live_an_instance_is_rebuilt(site: Site) -> None:
    site.place.declare(entity="buckets: 3\nttl: 1h")
    site.run()
    first = site.ledger.instances.canonical(REF)
    site.clock.sleep(3599)
    assert [each.state for each in site.run()] == [None]
    site.clock.sleep(1)
    (result,) = site.run()
    assert result.plan.found.why == ["its time to live is over"]
    second = site.ledger.instances.canonical(REF)
    assert first is not None
    assert second is not None
    expired = site.ledger.instances.get(first.uuid)
    assert expired is not None
    assert (expired.state, second.reason) == (InstanceState.EXPIRED, Reason.EXPIRY)
    intact(site)


def test_a_failed_rebuild_leaves_the_served_index_and_the_next_run_retries(site: Site) -> None:
    site.run()
    served = site.ledger.checkpoints.get(REF)
    frozen = replaced(
        site.ledger, {"parts.finish": _gone, "jobs.leave": _gone, "workers.retire": _gone, "slices.claim": _gone}
    )
    with pytest.raises(Gone):
        site.run(ledger=frozen, background=Still(), options=PlanOptions(full_refresh=True))
    assert site.ledger.checkpoints.get(REF) == served
    site.clock.sleep(600)
    (result,) = site.run(options=PlanOptions(full_refresh=True))
    assert result.state is JobState.COMPLETED
    states = [each.state for each in site.ledger.instances.newest(REF)]
    assert states == [InstanceState.LIVE, InstanceState.FAILED, InstanceState.LIVE]
    intact(site)
