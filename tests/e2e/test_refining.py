"""What makes searches quicker is built beside the jobs of a worker, which goes on meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.errors import UserError
from instep.jobs.serve import serve
from instep.system import Threads
from tests.doubles.container import workshop_of
from tests.doubles.through import replaced
from tests.waiting import SECONDS, until

from . import corpus
from .conftest import Location
from .test_many_workers import Site
from .test_watch import Steps


@dataclass
class Index:
    """An index in Lance that says that it can be refined until it was; `act` is what that takes."""

    act: Callable[[], None] = lambda: None
    calls: list[str] = field(default_factory=list)
    refined: bool = False

    def __call__(self, real: Any) -> Any:
        return replaced(real, {"refinable": self._refinable, "refine": self._refine, "maintain": self._maintain})

    def _refinable(self, _: Any, physical: str) -> bool:
        return not self.refined

    def _refine(self, _: Any, physical: str) -> None:
        self.calls.append("refine")
        self.act()
        self.refined = True
        self.calls.append("refined")

    def _maintain(self, real: Any, physical: str) -> None:
        self.calls.append("maintain")
        real(physical)


@pytest.fixture
def clock() -> Steps:
    return Steps()


@pytest.fixture
def site(tmp_path: Path, clock: Steps) -> Site:
    place = Location(tmp_path / "project", tmp_path / "docs")
    corpus.write(place.docs, range(12))
    place.declare()
    return Site(place, clock)


def work(site: Site, index: Index, **how: Any) -> None:
    """A worker in this process."""
    changes = {name: how.pop(name) for name in ("background",) if name in how}
    container = workshop_of(instep.load(site.place.root).project, site.ledger, clock=site.clock, engine="inline")
    with closing(container):
        setups = [replace(each, target=index(each.target)) for each in container.setups()]
        serve(setups, site.context(container, **changes), **how)


def test_changes_are_indexed_while_an_index_is_refined_and_a_stop_does_not_wait_for_it(
    site: Site, clock: Steps
) -> None:
    begun, end = threading.Event(), threading.Event()

    def act() -> None:
        begun.set()
        assert end.wait(SECONDS), "what came meanwhile has waited for it"

    def change() -> None:
        until(begun.is_set)
        corpus.write(site.place.docs, range(12, 13))

    clock.steps = [change, lambda: None]
    index = Index(act)
    with pytest.raises(KeyboardInterrupt):
        work(site, index, watch=2.0, background=Threads())
    assert site.place.wrong() == ""
    assert len(site.ledger.jobs.newest()) == 2
    assert index.calls == ["maintain", "refine"], "other upkeep waits for it, too"
    end.set()
    until(lambda: index.calls[-1] == "refined")


def test_what_could_not_be_built_is_said_and_tried_again_after_pauses_that_grow(site: Site, clock: Steps) -> None:
    times: list[float] = []

    def act() -> None:
        times.append(clock.monotonic())
        if len(times) < 4:
            raise UserError("no memory is left")

    clock.quiet = 20 * 60
    index = Index(act)
    with pytest.raises(KeyboardInterrupt):
        work(site, index, watch=60.0)
    pauses = [later - sooner for sooner, later in pairwise(times)]
    assert len(pauses) == 3
    assert pauses[0] >= 30
    assert all(later > sooner for sooner, later in pairwise(pauses)), pauses
    said = [each for each in site.told.said if "no memory is left" in each]
    assert len(said) == 3
    assert all("searches are slower than they could be" in each and "next try in" in each for each in said)
    assert index.refined
    assert len(site.ledger.jobs.newest()) == 1, "no job is needed for it"


def test_a_worker_that_ends_when_it_is_idle_refines_first(site: Site) -> None:
    index = Index()
    work(site, index, watch=2.0, until_idle=True)
    assert index.refined
    assert any("building the index that makes them quicker" in each for each in site.told.said)


def test_an_unexpected_error_is_said_without_secrets_and_ends_nothing(site: Site) -> None:
    def act() -> None:
        raise RuntimeError("api_key=s3cret1234")

    work(site, Index(act), watch=2.0, until_idle=True)
    assert site.place.wrong() == ""
    assert [each for each in site.told.said if "unexpected RuntimeError: api_key=***; next try in" in each]
