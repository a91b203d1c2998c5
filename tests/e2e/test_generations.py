"""Generations through real runs, workers and commands: built side by side, read apart, promoted in one step."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.answers.status import entity_status
from instep.cli import main
from instep.domain.events import InstanceTainted, WantCreated
from instep.domain.instances import InstanceState
from instep.domain.jobs import JobState
from instep.domain.refs import PartitionRef
from instep.domain.status import IndexState
from instep.domain.wants import WantState
from instep.entities.plan_request import PlanOptions
from instep.errors import UserError
from instep.jobs import finish
from instep.jobs.acquisition import Busy
from instep.jobs.promote import Promotion, promote
from instep.targets.lance.target import LanceTarget
from tests.doubles.container import workshop_of
from tests.doubles.through import replaced

from . import corpus, truth
from .conftest import Location
from .test_many_workers import Gone, Site, Still, _gone

REF = PartitionRef("Document")
V2 = PlanOptions(generation="v2")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    place = Location(tmp_path / "project", tmp_path / "docs")
    corpus.write(place.docs, range(12))
    place.declare(entity="buckets: 3")
    return Site(place)


def redeclare(site: Site, *, chunk: int = 300) -> None:
    site.place.declare(chunk=chunk, entity="buckets: 3")


def promoted(site: Site, generation: str, **changes: Any) -> Promotion:
    container = workshop_of(instep.load(site.place.root).project, site.ledger, clock=site.clock, engine="inline")
    with closing(container):
        (setup,) = container.setups()
        return promote(setup, generation, site.context(container, **changes), by="ann")


def built(site: Site, generation: str) -> truth.Truth:
    """What is in the index of a generation, read with the bare client."""
    import lance

    checkpoint = site.ledger.checkpoints.get(REF, generation)
    assert checkpoint is not None
    table = lance.dataset(site.place.index / f"{checkpoint.physical}.lance").to_table(columns=["document_id", "text"])
    return truth.Truth(zip(table["document_id"].to_pylist(), table["text"].to_pylist(), strict=True))


def physical(site: Site, generation: str) -> str:
    checkpoint = site.ledger.checkpoints.get(REF, generation)
    assert checkpoint is not None
    return checkpoint.physical


def served(site: Site, alias: str = "Document") -> str:
    return Path(truth.served(site.place.index, alias)).stem


def test_a_generation_is_built_beside_the_served_index_and_refreshed_once_it_is_promoted(site: Site) -> None:
    site.run()
    before = truth.stored(site.place.index)
    redeclare(site)
    (result,) = site.run(options=V2)
    assert (result.state, result.plan.generation) == (JobState.COMPLETED, "v2")
    assert truth.stored(site.place.index) == built(site, "") == before, "no reader gets it yet"
    assert built(site, "v2") == truth.expected(site.place.docs, size=300)
    assert served(site, "Document@v2") == physical(site, "v2"), "but who asks for it"
    current = site.ledger.instances.canonical(REF, "v2")
    assert current is not None
    assert (current.state, current.generation, current.previous) == (InstanceState.LIVE, "v2", None)

    done = promoted(site, "v2")
    assert (done.before, done.generation, done.changed) == ("", "v2", True)
    assert served(site) == physical(site, "v2")
    assert site.place.wrong() == ""

    corpus.write(site.place.docs, range(12, 15))
    (result,) = site.run()
    assert (result.plan.generation, result.counts.read) == ("v2", 3), "a run is for what is read"
    assert site.place.wrong() == ""
    assert built(site, "") == before, "and for nothing else"
    assert site.ledger.events.verify().differences == ()


def test_the_first_build_of_any_generation_is_served(site: Site) -> None:
    site.run(options=V2)
    assert site.ledger.partitions.promoted(REF) == "v2"
    assert site.place.wrong() == ""
    assert [each.state for each in site.run()] == [None], "there is nothing left to do"
    redeclare(site)
    site.run(options=PlanOptions(generation="v3"))
    assert served(site) == physical(site, "v2")


def test_a_promotion_changes_nothing_the_second_time_and_can_be_taken_back(site: Site) -> None:
    site.run()
    redeclare(site)
    site.run(options=V2)
    promoted(site, "v2")
    events, jobs = site.ledger.events.rows(), site.ledger.jobs.newest()
    assert not promoted(site, "v2").changed
    assert (site.ledger.events.rows(), site.ledger.jobs.newest(), site.ledger.workers.all()) == (events, jobs, [])
    assert promoted(site, "").changed
    assert served(site) == physical(site, "")
    assert site.ledger.partitions.promoted(REF) == ""
    redeclare(site, chunk=800)
    assert site.place.wrong() == ""


def test_a_generation_that_is_promoted_gets_the_alias_with_every_build_and_others_do_not(site: Site) -> None:
    site.run()
    redeclare(site)
    site.run(options=V2)
    promoted(site, "v2")
    site.run(options=PlanOptions(full_refresh=True, generation=""))
    assert served(site) == physical(site, "v2")
    site.run(options=PlanOptions(full_refresh=True))
    assert served(site) == served(site, "Document@v2") == physical(site, "v2")
    assert site.place.wrong() == ""
    promoted(site, "")
    site.run(options=PlanOptions(full_refresh=True, generation="v2"))
    assert served(site) == physical(site, "")
    assert served(site, "Document@v2") == physical(site, "v2")


@pytest.mark.parametrize("dies", ["before", "after"])
def test_a_promotion_that_died_before_it_was_recorded_is_completed_by_the_next_run(site: Site, dies: str) -> None:
    """Or nothing has happened, if it died before the alias was moved."""
    site.run()
    redeclare(site)
    site.run(options=V2)
    calls = {"leases.record": _gone} if dies == "after" else {"leases.acquire": _gone}
    frozen = replaced(site.ledger, {"jobs.discard": _gone, "jobs.leave": _gone, "workers.retire": _gone, **calls})
    with pytest.raises(Gone):
        promoted(site, "v2", ledger=frozen, background=Still())
    assert site.ledger.partitions.promoted(REF) == ""
    assert served(site) == physical(site, "v2" if dies == "after" else "")
    with closing(workshop_of(instep.load(site.place.root).project, site.ledger, engine="inline")) as container:
        status = entity_status(container.setups()[0], site.ledger)
    assert status.state is IndexState.INDEXED
    assert ["v2 is being promoted" in each for each in status.notes].count(True) == (dies == "after")
    assert not any("--full-refresh" in each for each in status.notes)
    site.clock.sleep(site.clock.now() / 1000)
    redeclare(site, chunk=300 if dies == "after" else 800)
    site.run()
    assert site.ledger.partitions.promoted(REF) == ("v2" if dies == "after" else "")
    assert site.place.wrong() == ""
    assert site.ledger.events.verify().differences == ()
    if dies == "before":
        redeclare(site)
    assert promoted(site, "v2").generation == "v2"
    assert served(site) == physical(site, "v2")


def test_a_decided_promotion_is_repeated_before_it_is_recorded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target may have recorded only that it is to be: with many of them readers see it a moment later."""
    site.run()
    redeclare(site)
    site.run(options=V2)
    frozen = replaced(
        site.ledger, {"leases.record": _gone, "jobs.discard": _gone, "jobs.leave": _gone, "workers.retire": _gone}
    )
    with pytest.raises(Gone):
        promoted(site, "v2", ledger=frozen, background=Still())
    site.clock.sleep(site.clock.now() / 1000)
    made, promote = [], LanceTarget.promote

    def noted(target: LanceTarget, alias: str, index: str | None, epoch: int) -> None:
        made.append((alias, index, site.ledger.partitions.promoted(REF)))
        promote(target, alias, index, epoch)

    monkeypatch.setattr(LanceTarget, "promote", noted)
    site.run()
    assert made == [("Document", physical(site, "v2"), "")]
    assert site.ledger.partitions.promoted(REF) == "v2"


def test_a_promotion_that_paused_past_its_lease_is_not_recorded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one was decided since: readers get that, and the ledger says so."""
    for generation in ("", "v2", "v3"):
        site.run(options=PlanOptions(generation=generation) if generation else None)
    promote, serving = LanceTarget.promote, LanceTarget.served
    paused, resumed = threading.Event(), threading.Event()

    def pausing(target: LanceTarget, alias: str, index: str | None, epoch: int) -> None:
        promote(target, alias, index, epoch)
        if index == physical(site, "v2") and not paused.is_set():
            paused.set()
            site.clock.sleep(site.clock.now() / 1000)
            assert promoted(site, "v3").changed
            resumed.set()

    monkeypatch.setattr(LanceTarget, "promote", pausing)

    def seen(target: LanceTarget, alias: str) -> str | None:
        """As the one that pauses saw it: its own index, just served."""
        return physical(site, "v2") if resumed.is_set() else serving(target, alias)

    monkeypatch.setattr(LanceTarget, "served", seen)
    with pytest.raises(UserError, match="others took over"):
        promoted(site, "v2", background=Still())
    monkeypatch.undo()
    assert site.ledger.partitions.promoted(REF) == "v3"
    assert served(site) == physical(site, "v3")


@pytest.mark.parametrize("again", ["as it was", "otherwise"])
def test_a_build_that_died_before_it_was_recorded_is_done(site: Site, again: str) -> None:
    """Its own alias serves it already. The other one has nothing to do with it."""
    site.run()
    redeclare(site)
    frozen = replaced(site.ledger, {"parts.finish": _gone, "jobs.leave": _gone, "workers.retire": _gone})
    with pytest.raises(Gone):
        site.run(options=V2, ledger=frozen, background=Still())
    assert site.ledger.checkpoints.get(REF, "v2") is None
    begun = served(site, "Document@v2")
    site.clock.sleep(3600)
    redeclare(site, chunk=300 if again == "as it was" else 500)
    site.run(options=V2)
    assert (begun == physical(site, "v2")) == (again == "as it was")
    assert served(site, "Document@v2") == physical(site, "v2")
    assert built(site, "v2") == truth.expected(site.place.docs, size=site.place.chunk)
    assert served(site) == physical(site, "")
    assert {each.state for each in site.ledger.jobs.newest()} == {JobState.COMPLETED}


def test_an_unbuilt_or_tainted_generation_is_not_promoted(site: Site) -> None:
    site.run()
    redeclare(site)
    with pytest.raises(UserError, match="nothing is built of generation 'v2'"):
        promoted(site, "v2")
    site.run(options=V2)
    current = site.ledger.instances.canonical(REF, "v2")
    assert current is not None
    site.ledger.events.append([InstanceTainted(instance=current.uuid, why="a bad model")])
    with pytest.raises(UserError, match="tainted: a bad model"):
        promoted(site, "v2")
    assert (served(site), site.ledger.partitions.promoted(REF)) == (physical(site, ""), "")
    site.run(options=V2)
    assert promoted(site, "v2").changed


def test_a_generation_in_which_documents_failed_is_not_promoted(site: Site) -> None:
    for number in range(6):
        corpus.path(site.place.docs, number).write_text(corpus.text(number, paragraphs=8))
    site.run()
    limit = corpus.path(site.place.docs, 0).stat().st_size // 2 + 1_000
    site.place.declare(entity=f"buckets: 3\nlimits: {{max_document_bytes: {limit}}}")
    (result,) = site.run(options=V2)
    assert result.counts.failed == 6
    assert result.state is JobState.COMPLETED_WITH_ERRORS, "it replaced nothing"
    with pytest.raises(UserError, match="6 of 12 documents"):
        promoted(site, "v2")
    assert served(site) == physical(site, "")
    assert site.ledger.failures.count(REF) == 0, "they are failures of that generation"
    assert site.ledger.failures.count(REF, "v2") == 6


def test_an_index_that_lost_rows_is_not_promoted(site: Site) -> None:
    import lance

    site.run()
    redeclare(site)
    site.run(options=V2)
    lance.dataset(site.place.index / f"{physical(site, 'v2')}.lance").delete("chunk_index = 0")
    with pytest.raises(UserError, match="rows where"):
        promoted(site, "v2")
    assert served(site) == physical(site, "")


@pytest.mark.parametrize("documents", [12, 60], ids=["all are read back", "some are"])
def test_an_index_that_holds_other_chunks_than_were_recorded_is_not_promoted(site: Site, documents: int) -> None:
    """As many as there were: what is counted tells nothing."""
    import lance

    corpus.write(site.place.docs, range(12, documents))
    site.run()
    redeclare(site)
    site.run(options=V2)
    table = lance.dataset(site.place.index / f"{physical(site, 'v2')}.lance")
    table.update({"chunk_hash": "'of another text'"})
    events = site.ledger.events.rows()
    with pytest.raises(UserError, match=r"not promoted: the target holds other chunks of file://.* not served") as said:
        promoted(site, "v2")
    assert said.value.exit_code == 1
    assert served(site) == physical(site, "")
    assert [each for each in site.ledger.events.rows() if each not in events] == []
    site.run(options=PlanOptions(generation="v2", full_refresh=True))
    assert promoted(site, "v2").changed


def test_a_partition_in_work_is_not_promoted(site: Site) -> None:
    site.run()
    redeclare(site)
    site.run(options=V2)
    asked: list[str] = []

    def in_between(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not asked:
            asked.append("once")
            with pytest.raises(Busy, match="is being indexed"):
                promoted(site, "v2")
        return real(*args, **kwargs)

    corpus.write(site.place.docs, range(12, 15))
    site.run(options=V2, ledger=replaced(site.ledger, {"slices.complete": in_between}))
    assert asked
    assert site.ledger.partitions.promoted(REF) == ""
    assert promoted(site, "v2").changed


def test_a_job_of_one_generation_is_not_continued_for_another(site: Site) -> None:
    site.leave_behind()
    left = site.only_job().id
    site.clock.sleep(3600)
    redeclare(site)
    (result,) = site.run(options=V2)
    assert result.job_id != left
    unfinished = site.ledger.jobs.unfinished(REF)
    assert unfinished is not None
    assert unfinished.id == left
    assert site.ledger.partitions.promoted(REF) == "v2", "it was served first"
    redeclare(site, chunk=800)
    (result,) = site.run(options=PlanOptions(generation=""))
    assert (result.job_id, result.state) == (left, JobState.COMPLETED)
    assert built(site, "") == truth.expected(site.place.docs, size=800)
    assert served(site) == physical(site, "v2")


def test_nothing_that_any_generation_needs_is_dropped(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish, "SWEEP_SECONDS", 0.0)
    site.run()
    first = physical(site, "")
    redeclare(site)
    site.run(options=V2)
    second = physical(site, "v2")
    promoted(site, "v2")
    redeclare(site, chunk=500)

    def stops(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        raise UserError("stopped half-way")

    with pytest.raises(UserError, match="half-way"):
        site.run(options=PlanOptions(generation="v3"), ledger=replaced(site.ledger, {"parts.begin_finish": stops}))
    left = site.ledger.jobs.unfinished(REF, "v3")
    assert left is not None
    begun = left.part(REF).part.physical
    redeclare(site)
    site.run(options=PlanOptions(full_refresh=True))
    there = {each.stem for each in site.place.index.glob("*.lance")}
    assert there == {first, physical(site, "v2"), begun}
    assert second not in there, "what was replaced within its generation is dropped"
    assert built(site, "") == truth.expected(site.place.docs, size=800)
    redeclare(site, chunk=500)
    (result,) = site.run(options=PlanOptions(generation="v3"))
    assert result.job_id == left.id
    assert built(site, "v3") == truth.expected(site.place.docs, size=500)


def test_workers_build_the_generation_that_is_wanted(site: Site) -> None:
    site.run()
    redeclare(site)
    for name, generation in (("old", ""), ("new", "v2")):
        event = WantCreated(want=name, refs=(str(REF),), generation=generation, as_of=site.clock.now() + 5)
        site.ledger.events.append([event])
    site.clock.sleep(60)
    site.serve()
    for name in ("old", "new"):
        want = site.ledger.wants.get(name)
        assert want is not None
        assert want.state is WantState.SUCCESSFUL
    assert {each.part.generation for job in site.ledger.jobs.newest() for each in job.parts} == {"", "v2"}
    assert built(site, "v2") == truth.expected(site.place.docs, size=300)
    assert site.ledger.partitions.promoted(REF) == ""


def test_a_generation_that_cannot_be_begun_keeps_no_other_from_being_built(site: Site) -> None:
    """One has buckets that it was not built with; of the other nothing is there yet."""
    site.run()
    site.clock.sleep(60)
    site.place.declare(entity="buckets: 5")
    for name, generation in (("old", ""), ("new", "v2")):
        event = WantCreated(want=name, refs=(str(REF),), generation=generation, fresh_within=0)
        site.ledger.events.append([event])
    site.serve()
    wants = {each.id: each for each in site.ledger.wants.newest()}
    assert {name: want.state for name, want in wants.items()} == {"old": WantState.FAILED, "new": WantState.SUCCESSFUL}


def test_an_alias_that_was_lost_is_recreated_by_promoting_again(site: Site) -> None:
    site.run()
    for file in site.place.index.glob("Document.alias-*"):
        file.unlink()
    done = promoted(site, "")
    assert (done.before, done.changed) == ("", False)
    assert served(site) == physical(site, "")
    assert site.place.wrong() == ""


# through the command line, on SQLite.


@pytest.fixture
def commands(
    place: Location, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Any]:
    monkeypatch.chdir(place.docs.parent)

    def command(*arguments: str, code: int = 0) -> Any:
        capsys.readouterr()
        assert main([*arguments, "--project", str(place.root), "--json"]) == code, capsys.readouterr()
        out = capsys.readouterr()
        return json.loads(out.out if code == 0 else out.out or out.err)

    return command


def test_two_generations_by_commands(
    place: Location, commands: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    commands("run")
    (first,) = commands("status")
    place.declare(chunk=300, extra="")
    file = place.root / "instep.yaml"
    file.write_text(file.read_text().replace("dimensions: 32", "dimensions: 64"))
    (plan,) = commands("plan", "--generation", "v2", code=2)
    assert (plan["kind"], plan["generation"]) == ("first build", "v2")
    commands("plan", "--generation", "v2", "-o", str(place.root / "plan.json"), code=2)
    (run,) = commands("run", str(place.root / "plan.json"))
    assert (run["state"], run["generation"]) == ("COMPLETED", "v2")

    (old,), (new,) = commands("status"), commands("status", "--generation", "v2")
    assert (old["generation"], old["promoted"], old["rows"]) == ("", True, first["rows"])
    assert (new["generation"], new["promoted"]) == ("v2", False)
    assert new["rows"] > old["rows"]
    rows: dict[str, set[str]] = {"": set(), "v2": set()}
    for name, found in rows.items():
        found |= {hit["chunk_id"] for hit in commands("search", "river lease", "-n", "1000", "--generation", name)}
        assert found
    assert not rows[""] & rows["v2"], "chunks of another size"
    assert {hit["chunk_id"] for hit in commands("search", "river lease", "-n", "1000")} <= rows[""]
    error = commands("search", "river", "--mode", "vector", "--generation", "", code=1)["error"]
    assert "another embedder" in json.dumps(error), "vectors of one embedder say nothing about those of another"
    some = next(iter(rows["v2"]))
    assert commands("why", "Document", some, "--generation", "v2")["instance"]["generation"] == "v2"
    commands("why", "Document", some, code=1)

    done = commands("promote", "Document", "--generation", "v2")
    assert (done["before"], done["generation"], done["changed"]) == ("", "v2", True)
    assert commands("promote", "Document", "--generation", "v2")["changed"] is False
    assert {hit["chunk_id"] for hit in commands("search", "river lease", "-n", "1000")} == rows["v2"]
    assert place.wrong() == ""

    corpus.write(place.docs, range(60, 63))
    (run,) = commands("run")
    assert (run["generation"], run["counts"]["read"]) == ("v2", 3)
    assert place.wrong() == ""

    commands("gc", "--keep", "1ms")
    assert sorted(each["generation"] for each in commands("history", "Document")) == ["", "v2"]
    assert {hit["chunk_id"] for hit in commands("search", "river", "-n", "1000", "--generation", "")}
    moments = {each["generation"]: each["promoted"] for each in commands("status", "--at", "2999-01-01")}
    assert moments == {"": False, "v2": True}
    commands("ledger", "verify")

    capsys.readouterr()
    assert main(["jobs", "--project", str(place.root)]) == 0
    assert capsys.readouterr().out.count("Document (v2)") == 2
    left = commands("taint", "Document")
    assert (left["generation"], left["old"]["generation"], left["new"]["reason"]) == ("v2", "v2", "taint")
    assert commands("rebuild", "Document", "--generation", "")["new"]["generation"] == ""
    assert "is not there" in json.dumps(commands("taint", "Document", "--generation", "v9", code=1))


@pytest.mark.parametrize("then", ["run", pytest.param("promote", marks=pytest.mark.proof)])
def test_a_promotion_that_was_killed_is_completed_at_once(
    place: Location, commands: Callable[..., Any], then: str
) -> None:
    """Its process held the lease, and is proved dead."""
    commands("run")
    place.declare(chunk=300, extra="")
    commands("run", "--generation", "v2")
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(place.root)], check=False)
    assert killed.returncode == 9
    (before,) = commands("status")
    assert before["generation"] == ""
    commands(*(["run"] if then == "run" else ["promote", "Document", "--generation", "v2"]))
    (after,) = commands("status")
    assert (after["generation"], after["promoted"]) == ("v2", True)
    assert place.wrong() == ""
    assert {each["state"] for each in commands("jobs")} == {"COMPLETED", "FAILED"}
    assert commands("workers") == []
    commands("ledger", "verify")


#: Dies when it has moved the alias and not yet said so.
_KILLED = """
import os, sys, instep
from instep.jobs import promote as serving
serving._Promotion._record = lambda self, lease: os._exit(9)
instep.load(sys.argv[1]).promote("Document", "v2")
"""


def test_commands_for_an_unknown_generation_are_refused(place: Location, commands: Callable[..., Any]) -> None:
    error = commands("promote", "Document", "--generation", "v2", code=1)["error"]
    assert "nothing is built" in json.dumps(error)
    assert not (place.root / ".instep").exists(), "no ledger is made just to find that it is empty"
    commands("run", "--generation", "no name", code=1)
    commands("expire", "--generation", "v2", code=1)
    commands("status", "--at", "2999-01-01", "--generation", "v2", code=1)
    commands("promote", "Document", code=64)
