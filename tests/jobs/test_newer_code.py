"""Processes with different code or settings on one ledger: what the newer one has built is not built back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.container import Container
from instep.domain.events import WantCreated
from instep.domain.fingerprint import ROWS, TARGET
from instep.domain.instances import Instance, InstanceState, Reason
from instep.domain.jobs import JobState
from instep.domain.refs import PartitionRef
from instep.domain.wants import WantState
from instep.entities.plan_request import PlanOptions
from instep.errors import Outdated
from instep.jobs.entity_result import EntityResult
from instep.jobs.run import run_entities
from instep.jobs.serve import serve
from instep.planning.loaded import Loaded, loaded_for
from tests.doubles.container import workshop_of
from tests.e2e import corpus
from tests.e2e.conftest import Location
from tests.e2e.test_many_workers import LiveRefresh, Site
from tests.jobs.own_code import entry_point, forget

REF = PartitionRef("Document")
LOADED = 1_000_000


def built(started_at: int | None, job: str = "theirs") -> Instance:
    return Instance("uuid", str(REF), "", 1, None, Reason.FIRST, InstanceState.LIVE, 1, job=job, started_at=started_at)


@pytest.mark.parametrize(
    ("build", "differs"),
    [
        (built(LOADED - 1), ["chunker"]),
        (built(LOADED), ["chunker"]),
        (built(LOADED + 1), []),
        (built(LOADED + 1), [ROWS]),
        (built(LOADED + 1, job="ours"), ["chunker"]),
        (built(None), ["chunker"]),
        (None, ["chunker"]),
    ],
    ids=["begun before", "at that time", "alike", "of other rows alone", "our own", "imported", "unknown"],
)
def test_what_is_no_newer_build_of_others_may_be_replaced(build: Instance | None, differs: list[str]) -> None:
    since = build.started_at if build else None
    Loaded(LOADED, own_jobs={"ours"}).demand_newest(REF, differs, build, since)


@pytest.mark.parametrize("differs", [["chunker"], ["transform", ROWS], [TARGET]])
def test_what_others_began_after_our_code_was_loaded_is_left_alone(differs: list[str]) -> None:
    with pytest.raises(Outdated, match="has loaded, at 1970-01-01 00:16 UTC") as refused:
        Loaded(LOADED).demand_newest(REF, differs, built(LOADED - 1), LOADED + 1)
    assert refused.value.where == str(REF)
    assert refused.value.hint is not None
    assert "Restart this process" in refused.value.hint


def test_what_was_built_before_is_left_alone_where_our_code_has_changed_on_disk() -> None:
    with pytest.raises(Outdated, match=r"that of mine:\w+ has changed since"):
        Loaded(LOADED, lambda _: ["mine:parse"]).demand_newest(REF, ["transform"], built(LOADED - 1), LOADED - 1)


# Two processes, one of which has loaded the project before it was declared otherwise.

OTHER = """
  Other:
    source: {type: files, path: others}
    embed: {type: hashing, dimensions: 32}
"""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    place = Location(tmp_path / "project", tmp_path / "docs")
    corpus.write(place.docs, range(6))
    place.declare()
    return Site(place)


def declare_others(site: Site) -> None:
    """Declare an entity more, of which the first document is indexed by whoever works on it."""
    declared = site.place.root / "instep.yaml"
    declared.write_text(declared.read_text() + OTHER)
    corpus.write(site.place.root / "others", range(1))


@contextmanager
def loaded(site: Site) -> Iterator[Container]:
    """A process that has loaded the project as it is declared now."""
    project = instep.load(site.place.root).project
    with closing(workshop_of(project, site.ledger, clock=site.clock, engine="inline")) as container:
        yield container


def run_in(container: Container, site: Site, loaded_at: Any, **options: Any) -> list[EntityResult]:
    return run_entities(container.setups(), loaded_at, PlanOptions(**options), wait_seconds=0.0)


def deploy(site: Site) -> None:
    """Declare it otherwise, some time later, and run that in a process of its own."""
    site.clock.sleep(60.0)
    site.place.declare(chunk=500)


@pytest.mark.parametrize("full_refresh", [False, True])
def test_an_old_process_neither_rebuilds_nor_changes_what_a_newer_one_has_built(site: Site, full_refresh: bool) -> None:
    site.run()
    with loaded(site) as old:
        context = site.context(old)
        deploy(site)
        site.run()
        corpus.write(site.place.docs, range(6, 7))
        with pytest.raises(Outdated, match="it was built by newer code or settings"):
            run_in(old, site, context, full_refresh=full_refresh)
    assert len(site.ledger.jobs.newest()) == 2
    site.run(wait=0.0)  # Nobody holds its lease.
    assert site.place.wrong() == ""


def test_a_process_remembers_its_builds_and_none_of_its_refreshes(site: Site) -> None:
    with loaded(site) as process:
        context = site.context(process)
        (build,) = run_in(process, site, context)
        for number in range(6, 9):
            corpus.write(site.place.docs, range(number, number + 1))
            (refresh,) = run_in(process, site, context)
            assert refresh.counts.written
        assert context.loaded is not None
        assert context.loaded.own_jobs == {build.job_id}


def test_who_goes_back_on_purpose_wins_over_what_is_running(site: Site) -> None:
    site.run()
    deploy(site)
    with loaded(site) as newer:
        context = site.context(newer)
        run_in(newer, site, context)
        site.clock.sleep(60.0)
        site.place.declare(chunk=800)
        (back,) = site.run()
        assert back.promoted
        with pytest.raises(Outdated):
            run_in(newer, site, context)
    assert site.place.wrong() == ""


def test_an_old_process_that_builds_once_more_is_the_older_one_still(site: Site) -> None:
    """After the newer one has started, and before that has planned."""
    site.run()
    with loaded(site) as old:
        before = site.context(old)
        deploy(site)
        with loaded(site) as newer:
            context = site.context(newer)
            site.clock.sleep(60.0)
            (again,) = run_in(old, site, before, full_refresh=True)
            assert again.promoted
            (built_by_newer,) = run_in(newer, site, context)
            assert built_by_newer.promoted
            with pytest.raises(Outdated):
                run_in(old, site, before)
            assert run_in(newer, site, context)[0].state is None
    assert site.place.wrong() == ""


def test_a_build_of_which_nobody_wrote_down_who_made_it_counts_from_its_beginning(site: Site) -> None:
    build = built(LOADED + 1, job="forgotten")
    assert loaded_for(build, site.ledger) == LOADED + 1
    assert loaded_for(None, site.ledger) is None


def test_an_outdated_entity_stops_no_other_and_has_a_state_of_its_own(site: Site) -> None:
    declare_others(site)
    site.run()
    with loaded(site) as old:
        context = site.context(old)
        deploy(site)
        site.run()
        corpus.write(site.place.root / "others", range(1, 2))
        document, other = run_in(old, site, context)
    assert (document.state_name, other.state_name) == ("OUTDATED", "COMPLETED")
    assert document.failed
    assert other.counts.written == 1
    assert "Restart this process" in str(document.problem)


def test_an_old_process_leaves_the_unfinished_job_of_a_newer_one(site: Site) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    site.run()
    with loaded(site) as old:
        context = site.context(old)
        deploy(site)
        with pytest.raises(KeyboardInterrupt):
            site.run(engine=lambda _: LiveRefresh(interrupt))
        corpus.write(site.place.docs, range(6, 7))
        with pytest.raises(Outdated):
            run_in(old, site, context)
    newest = site.ledger.jobs.newest()[0]
    assert newest.state is JobState.STOPPED
    (result,) = site.run(wait=0.0)  # Nobody holds its lease.
    assert (result.job_id, result.state) == (newest.id, JobState.COMPLETED)
    assert site.place.wrong() == ""


def test_an_old_worker_leaves_a_want_to_newer_ones_and_spends_none_of_its_attempts(site: Site) -> None:
    site.run()
    with loaded(site) as old:
        context = site.context(old)
        deploy(site)
        site.run()
        site.clock.sleep(60.0)  # What was built is older than what is wanted.
        site.ledger.events.append([WantCreated(want="fresh", refs=(str(REF),), as_of=site.clock.now())])
        serve(old.setups(), context, until_idle=True)
        want = site.ledger.wants.get("fresh")
        assert want is not None
        assert (want.state, want.attempts) == (WantState.IDLE, 0)
    assert sum("newer code or settings" in each for each in site.told.said) == 1
    site.serve()
    want = site.ledger.wants.get("fresh")
    assert want is not None
    assert want.state is WantState.SUCCESSFUL


# Code on disk.

MODULE = "code_that_is_changed_by_a_test"
HELPER = "helper_that_is_changed_by_a_test"
PROJECT = f"""
name: p
engine: inline
targets: {{main: {{type: lance, uri: .instep/index}}}}
entities:
  Document:
    source: {{type: files, path: docs}}
    parse: {{type: python, function: "{MODULE}:parse"}}
    embed: {{type: hashing, dimensions: 8}}
"""


def _restart() -> None:
    for each in (MODULE, HELPER):
        forget(each)


@pytest.mark.parametrize("changed", [MODULE, HELPER])
def test_a_process_whose_code_has_changed_since_it_was_imported_does_not_build_back(
    tmp_path: Path, changed: str
) -> None:
    """Its project is loaded anew for each run, as orchestrators do; Python imports a module once."""
    _changes_on_disk(tmp_path, changed, PROJECT)


def test_nor_does_one_whose_plug_in_has_changed_that_is_installed_to_be_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    entry_point(tmp_path, "instep.parsers", "changing", f"{MODULE}:parse")
    _changes_on_disk(tmp_path, MODULE, PROJECT.replace(f"{MODULE}:parse", "changing"))


def _changes_on_disk(tmp_path: Path, changed: str, declared: str) -> None:
    """A process runs, a newer one builds with other code, and the first one leaves that alone until it restarts."""
    said = "def said(data):\n    return 'old ' + data.decode()\n"
    parse = "\n\ndef parse(data, uri):\n    return said(data)\n"
    (tmp_path / f"{HELPER}.py").write_text(said)
    code = tmp_path / f"{MODULE}.py"
    code.write_text((said if changed == MODULE else f"from {HELPER} import said\n") + parse)
    code = tmp_path / f"{changed}.py"
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("one")
    (tmp_path / "instep.yaml").write_text(declared)
    project = instep.load(tmp_path)
    try:
        project.run()
        code.write_text(code.read_text().replace("old", "newer"))  # Of another size: Python may compare no more.
        subprocess.run([sys.executable, "-m", "instep", "run", "--quiet"], cwd=tmp_path, check=True)
        (tmp_path / "docs" / "b.txt").write_text("two")
        with pytest.raises(Outdated, match=rf"that of {MODULE}:\w+ has changed since"):
            instep.load(tmp_path).run()
        assert [each.text for each in project.search("one", mode="text")] == ["newer one"]
        _restart()
        (result,) = instep.load(tmp_path).run()
        assert (result.state_name, result.counts.written) == ("COMPLETED", 1)
    finally:
        _restart()
        sys.path[:] = [each for each in sys.path if each != str(tmp_path)]
