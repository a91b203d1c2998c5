"""A worker that watches its sources: what changes there lands, without anybody asking for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.domain.refs import PartitionRef
from instep.engine.spark import SparkEngine
from instep.service.compose import Workshop
from instep.service.documents.setup import DocumentSetup
from instep.service.watch import REST
from instep.service.worker import serve
from instep.sources.port import DocumentSource, Listing
from tests.doubles.clock import VirtualClock

from . import corpus
from .conftest import Place
from .test_many_workers import Site

EVERY = 2.0
REF = PartitionRef("Document")


@dataclass
class Steps(VirtualClock):
    """Does the next thing whenever nothing was done for so long that the sources were looked at; then Ctrl-C."""

    steps: list[Callable[[], None]] = field(default_factory=list)
    quiet: float = 3 * EVERY

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.quiet -= seconds
        if self.quiet <= 0:
            self.quiet = 3 * EVERY
            if not self.steps:
                raise KeyboardInterrupt
            self.steps.pop(0)()


@dataclass
class Slow:
    """A source whose listing takes some seconds. `looks` are the times at which it was asked for one."""

    inner: DocumentSource
    clock: VirtualClock
    seconds: float
    looks: list[float] = field(default_factory=list)

    def list(self, progress: Callable[[int], None] | None = None) -> Listing:
        self.looks.append(self.clock.monotonic())
        self.clock.milliseconds += round(1000 * self.seconds)
        return self.inner.list(progress)


@pytest.fixture
def clock() -> Steps:
    return Steps()


@pytest.fixture
def site(tmp_path: Path, clock: Steps) -> Site:
    place = Place(tmp_path / "project", tmp_path / "docs")
    corpus.write(place.docs, range(12))
    place.declare(entity="buckets: 3\ndeletes: {share: 0.2, floor: 2}")
    return Site(place, clock)


def watch(site: Site, slow: Slow | None = None, engine: str = "inline") -> None:
    workshop = Workshop(instep.load(site.place.root).project, clock=site.clock, engine=engine)
    with closing(workshop):
        (setup,) = workshop.setups()
        assert isinstance(setup, DocumentSetup)
        if slow:
            slow.inner = setup.source
            setup = replace(setup, source=slow)  # type: ignore[arg-type]  # nothing is read of it
        with pytest.raises(KeyboardInterrupt):
            serve([setup], site.context(workshop), watch=EVERY)


def test_what_changes_lands_and_what_does_not_makes_no_job(site: Site, clock: Steps) -> None:
    def change() -> None:
        assert site.place.wrong() == ""
        path = corpus.path(site.place.docs, 1)
        path.write_text(path.read_text() + "\n## More\n\nA new ending.\n")
        corpus.write(site.place.docs, range(12, 13))

    def remove() -> None:
        assert site.place.wrong() == ""
        corpus.path(site.place.docs, 2).unlink()

    clock.steps = [change, remove, lambda: None, lambda: None]
    watch(site)
    assert site.place.wrong() == ""
    effects = [(each.written, each.deleted) for each in (job.part(REF).counts for job in site.ledger.jobs())]
    assert effects == [(0, 1), (2, 0), (12, 0)]
    assert site.ledger.workers() == []


@pytest.mark.spark
def test_changes_land_in_the_session_that_is_there(site: Site, clock: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = []
    run = SparkEngine.run

    def watched(self: SparkEngine, *args: Any) -> Any:
        sessions.append(self._spark.get().conf.get("spark.app.id"))
        return run(self, *args)

    monkeypatch.setattr(SparkEngine, "run", watched)
    clock.steps = [lambda: corpus.write(site.place.docs, range(12, 13)), lambda: None]
    watch(site, engine="spark")
    assert site.place.wrong() == ""
    assert [job.part(REF).counts.written for job in site.ledger.jobs()] == [1, 12]
    assert sessions == sessions[:1] * 2


def test_what_needs_a_person_is_said_and_nothing_is_deleted(site: Site, clock: Steps) -> None:
    def lose_nearly_all() -> None:
        for number in range(11):
            corpus.path(site.place.docs, number).unlink()

    clock.steps = [lose_nearly_all, lambda: None]
    watch(site)
    assert len(site.ledger.jobs()) == 1
    assert [each for each in site.told.said if "is not deleted unasked" in each]


def test_a_source_that_takes_long_to_look_at_is_left_alone_for_longer(site: Site, clock: Steps) -> None:
    site.run()
    clock.quiet = 300.0
    slow = Slow(None, clock, 5.0)  # type: ignore[arg-type]  # set when it is known
    watch(site, slow)
    pauses = [later - sooner - 5.0 for sooner, later in zip(slow.looks, slow.looks[1:], strict=False)]
    assert len(pauses) > 5
    assert all(REST * 5.0 <= each <= REST * 5.0 + EVERY for each in pauses), pauses
