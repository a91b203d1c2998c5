"""A worker that watches its sources: changes there are indexed without a request."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.answers.jobs import stop_job
from instep.answers.status import Partition, entity_status
from instep.domain.clock import TIMING
from instep.domain.jobs import Job, JobState
from instep.domain.refs import PartitionRef
from instep.entities.documents.setup import DocumentSetup
from instep.jobs.serve import serve
from instep.jobs.source_poller import REST
from instep.pipeline.engine.spark_engine import SparkEngine
from instep.sources.document_source import DocumentSource, Listing
from tests.doubles.clock import VirtualClock
from tests.doubles.container import workshop_of
from tests.doubles.through import replaced
from tests.waiting import until

from . import corpus
from .conftest import Location
from .test_many_workers import LiveRefresh, Site

EVERY = 2.0
REF = PartitionRef("Document")


@dataclass
class Steps(VirtualClock):
    """Does the next thing whenever nothing was done for so long that the sources were looked at; then Ctrl-C."""

    steps: list[Callable[[], None]] = field(default_factory=list)
    calm: float = 3 * EVERY
    quiet: float = 3 * EVERY

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.quiet -= seconds
        if self.quiet <= 0:
            self.quiet = self.calm
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
    place = Location(tmp_path / "project", tmp_path / "docs")
    corpus.write(place.docs, range(12))
    place.declare(entity="buckets: 3\ndeletes: {share: 0.2, floor: 2}")
    return Site(place, clock)


def watch(
    site: Site,
    slow: Slow | None = None,
    engine: str = "inline",
    target: Callable[[Any], Any] = lambda real: real,
    every: float = EVERY,
) -> None:
    container = workshop_of(instep.load(site.place.root).project, site.ledger, clock=site.clock, engine=engine)
    with closing(container):
        setups = [replace(each, target=target(each.target)) for each in container.setups()]
        if slow:
            (setup,) = setups
            assert isinstance(setup, DocumentSetup)
            slow.inner = setup.source
            setups = [replace(setup, source=slow)]  # type: ignore[arg-type]  # nothing is read of it
        with pytest.raises(KeyboardInterrupt):
            serve(setups, site.context(container, timing=TIMING), watch=every)


def test_changed_documents_are_indexed_and_unchanged_ones_make_no_job(site: Site, clock: Steps) -> None:
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
    effects = [(each.written, each.deleted) for each in (job.part(REF).counts for job in site.ledger.jobs.newest())]
    assert effects == [(0, 1), (2, 0), (12, 0)]
    assert site.ledger.workers.all() == []


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
    assert [job.part(REF).counts.written for job in site.ledger.jobs.newest()] == [1, 12]
    assert sessions == sessions[:1] * 2


def test_a_refused_deletion_is_reported_and_nothing_is_deleted(site: Site, clock: Steps) -> None:
    def lose_nearly_all() -> None:
        for number in range(11):
            corpus.path(site.place.docs, number).unlink()

    clock.steps = [lose_nearly_all, lambda: None]
    watch(site)
    assert len(site.ledger.jobs.newest()) == 1
    assert [each for each in site.told.said if "is not deleted without permission" in each]


def test_a_source_that_takes_long_to_look_at_is_left_alone_for_longer(site: Site, clock: Steps) -> None:
    site.run()
    clock.quiet = 300.0
    slow = Slow(None, clock, 5.0)  # type: ignore[arg-type]  # set when it is known
    watch(site, slow)
    pauses = [later - sooner - 5.0 for sooner, later in zip(slow.looks, slow.looks[1:], strict=False)]
    assert len(pauses) > 5
    assert all(REST * 5.0 <= each <= REST * 5.0 + EVERY for each in pauses), pauses


def test_a_topic_is_looked_at_again_at_once_though_a_look_took_long(
    site: Site, clock: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.run()
    clock.quiet = 60.0
    monkeypatch.setattr(DocumentSetup, "look_every", 0.25)  # As it is of topics.
    slow = Slow(None, clock, 5.0)  # type: ignore[arg-type]  # set when it is known
    watch(site, slow)
    pauses = [later - sooner - 5.0 for sooner, later in zip(slow.looks, slow.looks[1:], strict=False)]
    assert len(pauses) > 5
    assert all(each <= 1.0 for each in pauses), pauses


# What ended badly, and what was stopped.

#: Of this, and then again and again, a job would be made each few seconds.
LONG = 20 * 60
#: How often sources are looked at then; and where only what becomes of it in the end matters.
SELDOM, RARELY = 10.0, 60.0
REFUSED = "were recorded; not served"


def said(site: Site, text: str) -> int:
    return sum(text in each for each in site.told.said)


def miscounted(real: Any) -> Any:
    """A target that holds more than was written: whatever is built in it is refused."""
    return replaced(real, {"rows": lambda rows, physical: rows(physical) + 1})


def jobs(site: Site) -> list[Job]:
    """The oldest first."""
    return list(reversed(site.ledger.jobs.newest(100)))


def test_a_build_that_was_refused_is_retried_after_pauses_that_grow(site: Site, clock: Steps) -> None:
    clock.quiet = LONG
    watch(site, target=miscounted, every=SELDOM)
    ended = jobs(site)
    assert {each.state for each in ended} == {JobState.FAILED}
    pauses = [(later.created_at - (job.finished_at or 0)) / 1000 for job, later in pairwise(ended)]
    assert 4 <= len(pauses) <= 6, pauses
    assert pauses[0] >= 30
    assert all(later >= 2 * sooner - SELDOM for sooner, later in pairwise(pauses)), pauses
    assert said(site, "it is tried again after") == len(ended), "each end is said once"
    assert said(site, REFUSED) == 1, "and its reason, as long as it is the same"
    assert said(site, ".; ") == 0, "no full stop before what follows"
    assert any(REFUSED in note for note in status(site).notes)


def test_a_refused_build_is_held_back_by_another_worker_too(site: Site, clock: Steps) -> None:
    clock.quiet = 60.0
    watch(site, target=miscounted)
    before = len(jobs(site))
    assert before == 2, "at once, and after half a minute"
    clock.quiet = 10.0
    watch(site)
    assert len(jobs(site)) == before
    assert said(site, "(2 times in a row)")


def test_a_changed_declaration_is_tried_at_once(site: Site, clock: Steps) -> None:
    clock.quiet = 10.0
    watch(site, target=miscounted)
    site.place.declare(chunk=700, entity="buckets: 3")
    clock.quiet = 10.0
    watch(site)
    assert [each.state for each in jobs(site)] == [JobState.FAILED, JobState.COMPLETED]
    assert site.place.wrong() == ""


def test_a_run_on_request_does_not_wait_for_the_pause(site: Site, clock: Steps) -> None:
    clock.quiet = 10.0
    watch(site, target=miscounted)
    (result,) = site.run()
    assert result.promoted
    clock.quiet = 10.0
    watch(site)
    assert len(jobs(site)) == 2
    assert site.place.wrong() == ""


def interrupted(site: Site) -> None:
    """A run that got Ctrl-C in its first wave."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        site.run(engine=lambda _: LiveRefresh(interrupt))
    assert site.only_job().state is JobState.STOPPED


def test_a_job_that_a_person_stopped_stays_stopped(site: Site, clock: Steps) -> None:
    interrupted(site)
    id = site.only_job().id
    assert stop_job(site.ledger, id, "enough", clock=clock) is JobState.STOPPED
    clock.quiet = LONG
    watch(site, every=RARELY)
    assert site.only_job().state is JobState.STOPPED
    assert said(site, "was stopped by request: enough, and stays stopped") == 1
    assert any("enough" in note and f"instep job resume {id[:8]}" in note for note in status(site).notes)
    site.ledger.jobs.start(id)
    clock.quiet = 30.0
    watch(site)
    assert site.only_job().state is JobState.COMPLETED
    assert site.place.wrong() == ""


def test_a_job_that_was_only_left_is_continued(site: Site, clock: Steps) -> None:
    interrupted(site)
    clock.quiet = 60.0
    watch(site)
    assert site.only_job().state is JobState.COMPLETED
    assert site.place.wrong() == ""


def test_a_watcher_with_older_code_changes_nothing_until_it_is_its_own_again(site: Site, clock: Steps) -> None:
    """Others rebuild while it watches: once as it is declared anew, and once more as it was."""

    def rebuild(chunk: int) -> None:
        site.place.declare(chunk=chunk, entity="buckets: 3\ndeletes: {share: 0.2, floor: 2}")
        clock.milliseconds += 60_000
        site.run()

    def change() -> None:
        assert len(jobs(site)) == 2
        corpus.write(site.place.docs, range(12, 13))

    def go_back() -> None:
        assert len(jobs(site)) == 2, "nothing was rebuilt"
        assert said(site, "it was built by newer code or settings than this process has loaded") == 1
        rebuild(800)
        corpus.write(site.place.docs, range(13, 14))

    clock.quiet, clock.calm = 60.0, 10 * 60.0
    clock.steps = [lambda: rebuild(500), change, go_back, lambda: None]
    watch(site, every=SELDOM)
    assert [job.part(REF).part.fresh for job in jobs(site)] == [True, True, True, False]
    assert site.place.wrong() == ""


UPSTREAM = """
  Site:
    source: {type: files, path: sites}
    embed: {type: hashing}
"""


def test_an_entity_with_an_empty_dependency_waits_for_it(site: Site, clock: Steps) -> None:
    site.place.declare(entity="buckets: 3\ndepends_on: [Site]")
    declared = site.place.root / "instep.yaml"
    declared.write_text(declared.read_text() + UPSTREAM)
    sites = site.place.root / "sites"
    sites.mkdir()
    clock.quiet, clock.calm = LONG, 3 * RARELY
    clock.steps = [lambda: corpus.write(sites, range(1))]
    watch(site, every=RARELY)
    made = jobs(site)
    assert {part.part.ref.entity for job in made for part in job.parts} == {"Document", "Site"}
    assert all(job.state is JobState.COMPLETED for job in made), "no job was made in vain"
    assert said(site, "waits for Site@global: ") == 1


@pytest.mark.parametrize("broken", ["missing folder", "refused"])
def test_an_error_of_one_watched_entity_stops_no_other(site: Site, clock: Steps, broken: str) -> None:
    declared = site.place.root / "instep.yaml"
    declared.write_text(declared.read_text() + UPSTREAM)
    if broken == "refused":
        (site.place.root / "sites").mkdir()
        (site.place.root / "sites" / "a.pdf").write_bytes(b"%PDF-1.7 nothing")
    clock.quiet = LONG
    watch(site, every=RARELY)
    assert site.place.wrong() == ""


def status(site: Site) -> Partition:
    container = workshop_of(instep.load(site.place.root).project, site.ledger, clock=site.clock)
    with closing(container):
        return entity_status(container.setups(["Document"])[0], site.ledger)


def test_a_changed_file_is_found_though_no_listing_is_due(site: Site) -> None:
    """A real process, which lists the source at its start and then not for an hour."""
    place = site.place
    place.run()
    command = [sys.executable, "-m", "instep", "run", "--watch", "--every", "3600", "--json"]
    with subprocess.Popen(command, cwd=place.root, stderr=subprocess.DEVNULL) as process:
        try:
            project = instep.load(place.root)

            def found(word: str) -> int:
                return len(project.search(word, mode="text"))

            def written(word: str) -> bool:
                """Written again and again: the first ones may come before anything watches."""
                (place.docs / f"{word}.md").write_text(f"# {word}\n\nAll about the {word}.\n")
                time.sleep(0.1)
                return found(word) > 0

            until(lambda: written("okapi"))
            (place.docs / "giraffe.md").write_text("# giraffe\n\nAll about the giraffe.\n")
            until(lambda: found("giraffe") > 0)
            (place.docs / "okapi.md").unlink()
            until(lambda: found("okapi") == 0)
            (place.docs / "more").mkdir()
            (place.docs / "more" / "zebra.md").write_text("# zebra\n\nAll about the zebra.\n")
            until(lambda: found("zebra") > 0)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
