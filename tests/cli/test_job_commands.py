"""`instep jobs`, `workers` and `job`: what they print, their JSON, exit codes, and errors that help."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from instep.app import Instep
from instep.cli import main
from instep.domain.clock import TIMING
from instep.domain.jobs import JobState
from instep.ledger.ledger import Ledger
from tests.cli import ledgers
from tests.cli.ledgers import ANN, BOB, JOB
from tests.cli.saying import answer, said, widest
from tests.doubles.clock import VirtualClock
from tests.e2e import corpus

OTHER = "1f0c9999-bbbb-4000-8000-000000000002"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, and the current folder in it."""
    corpus.write(tmp_path / "docs", range(3))
    corpus.project(tmp_path, tmp_path / "docs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_before_anything_has_run_there_is_nothing_and_nothing_is_made(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "nothing has run yet" in said(capsys, "jobs")
    assert "No worker" in said(capsys, "workers")
    assert answer(capsys, "jobs") == []
    assert answer(capsys, "workers") == []
    for act in ("show", "stop", "resume", "retry"):
        refused = said(capsys, "job", act, "1f0c", code=1)
        assert "nothing has run yet" in refused
        assert "instep run" in refused
    assert not (folder / ".instep").exists()


def test_jobs_are_listed_newest_first_in_eighty_columns(
    ledger: Ledger, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    documents, _ = ledgers.begin(ledger, entities=["Document", "MergeRequest"], slices=2)
    ledgers.complete(ledger, documents, 2, failed=1)
    clock.sleep(37 * 60)
    ledgers.begin(ledger, job_id=OTHER, entities=["Ticket"], worker=BOB)
    clock.sleep(3 * 60)
    text = said(capsys, "jobs")
    assert widest(text) <= 80
    newer, older = [line for line in text.splitlines() if line.startswith(" 1f0c")]
    assert newer.split()[:4] == [OTHER[:8], "running", "Ticket", "0%"]
    assert "3 min ago" in newer
    assert "Document +1" in older
    assert " 50% " in older
    assert "40 min ago" in older
    assert [each["id"] for each in answer(capsys, "jobs")] == [OTHER, JOB]
    assert [each["id"] for each in answer(capsys, "jobs", "--limit", "1")] == [OTHER]


def test_a_job_that_waits_for_a_worker_is_shown_as_waiting(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    ledgers.begin(ledger)
    ledger.workers.retire(ANN)
    assert "waits for a worker" in said(capsys, "jobs")
    assert "waits for a worker" in said(capsys, "job", "show", "1f0c")


def test_workers_show_their_host_and_activity(
    ledger: Ledger, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    (part,) = ledgers.begin(ledger)
    ledgers.claim(ledger, part, 2)
    ledgers.register(ledger, BOB, host="server-2", pid=7)
    clock.sleep(70)
    ledger.workers.heartbeat(BOB, [])
    clock.sleep(20)
    text = said(capsys, "workers")
    assert widest(text) <= 80
    ann, bob = [line for line in text.splitlines() if ":" in line and "Worker" not in line]
    assert ann.split() == [ANN[:8], "server-1:4711", "1", "min", "ago", "Document", "2", "1", "min", "ago"]
    assert bob.split() == [BOB[:8], "server-2:7", "20", "s", "ago", "idle", "0", "-"]
    assert f"Worker {ANN[:8]} is late" in text
    assert f"Worker {BOB[:8]}" not in text
    first, second = answer(capsys, "workers")
    assert (first["kind"], first["pulse"], first["refs"], first["jobs"]) == ("run", "late", ["Document@global"], [JOB])
    assert (second["kind"], second["pulse"], second["busy_since"]) == ("worker", "steady", None)


def test_a_worker_in_a_job_without_a_slice_in_work_is_not_called_idle(
    ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    ledgers.begin(ledger)
    text = said(capsys, "workers")
    assert f"job {JOB[:8]}" in text
    assert "idle" not in text


def test_a_worker_that_is_silent_for_five_minutes_is_taken_for_dead(
    ledger: Ledger, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    ledgers.begin(ledger)
    clock.sleep(5 * 60)
    assert "considered dead" in said(capsys, "workers")
    assert "considered dead" in said(capsys, "job", "show", JOB)


def test_a_job_is_shown_entity_by_entity_with_its_workers(
    ledger: Ledger, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    documents, tickets = ledgers.begin(ledger, entities=["Document", "Ticket"], slices=2)
    ledgers.complete(ledger, documents, 2, failed=1)
    ledgers.finish(ledger, documents, JobState.COMPLETED_WITH_ERRORS)
    ledgers.claim(ledger, tickets, 1)
    clock.sleep(20)
    text = said(capsys, "job", "show", "1f0c")
    assert widest(text) <= 80
    for expected in (
        f"job      {JOB}",
        "state    running",
        "10 of 20 documents (50%), 0.5/s, about 20 s left",
        "1 waiting, 1 in work, 2 completed",
        "asked    full_refresh\n",
        f"{ANN[:8]} on server-1:4711, 1 in work, heartbeat 20 s ago",
        "instep failures",
    ):
        assert expected in text
    assert "instep job retry" not in text
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.startswith((" Document", " Tic"))}
    assert rows["Document"] == ["with", "errors", "10", "8", "0", "0", "2", "24"]
    assert rows["Ticket"] == ["open", "10", "0", "0", "0", "0", "0"]
    shown = answer(capsys, "job", "show", "1f0c")
    assert (shown["done"], shown["units"], shown["counts"]["failed"]) == (10, 20, 2)
    assert {part["ref"]: part["state"] for part in shown["parts"]} == {
        "Document@global": "COMPLETED_WITH_ERRORS",
        "Ticket@global": None,
    }
    assert [worker["id"] for worker in shown["workers"]] == [ANN]


def test_a_job_being_planned_shows_its_request(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    ledgers.register(ledger, ANN)
    ledger.jobs.begin(JOB, ANN, {"entities": ["Document@global", "Ticket@global"], "full_refresh": False})
    text = said(capsys, "job", "show", JOB)
    assert "state    initializing" in text
    assert "asked    entities=Document@global,Ticket@global\n" in text
    assert "initializing" in said(capsys, "jobs")


def test_an_error_of_an_entity_is_shown_with_it(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    (part,) = ledgers.begin(ledger, slices=1)
    ledgers.complete(ledger, part, 1)
    assert ledger.parts.begin_finish(JOB, part.ref, ANN)
    ledger.parts.finish(JOB, part, JobState.FAILED, worker_id=ANN, error="the index lost rows")
    assert "Document: the index lost rows" in said(capsys, "job", "show", JOB)


def test_a_stopped_job_is_resumed_by_the_beginning_of_its_id(
    ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    ledgers.begin(ledger)
    stopped = said(capsys, "job", "stop", "1f0c", "--wait")
    assert "is stopped: 0 of 20 documents done" in stopped
    assert f"instep job resume {JOB[:8]}" in stopped
    shown = said(capsys, "job", "show", "1f0c")
    assert "stopped by " in shown
    assert f"instep job resume {JOB[:8]}" in shown
    resumed = said(capsys, "job", "resume", "1f0c")
    assert "is running" in resumed
    assert "instep worker" in resumed
    assert ledgers.job_of(ledger).state is JobState.RUNNING


def test_a_resumed_job_needs_no_advice_while_a_server_waits_for_work(
    ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    ledgers.begin(ledger)
    ledgers.stop(ledger)
    ledgers.register(ledger, BOB)
    assert "instep worker" not in said(capsys, "job", "resume", JOB)


def test_stopping_and_resuming_give_the_job_as_json(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    ledgers.begin(ledger)
    assert answer(capsys, "job", "stop", JOB)["state"] == "STOPPED"
    assert answer(capsys, "job", "resume", JOB)["state"] == "RUNNING"


def test_a_job_with_slices_in_work_is_stopping_and_may_be_waited_for(
    ledger: Ledger, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    (part,) = ledgers.begin(ledger)
    ledgers.claim(ledger, part, 1)
    assert "is stopping: slices in work have 30 seconds" in said(capsys, "job", "stop", JOB)
    refused = said(capsys, "job", "resume", JOB, code=1)
    assert "still stopping" in refused
    assert "--wait" in refused
    before = clock.now()
    assert "is stopped: 0 of 20" in said(capsys, "job", "stop", JOB, "--wait")
    # Its worker is dead: the grace time is all there is to wait for.
    assert TIMING.grace <= clock.now() - before < TIMING.grace + 1_000


def test_an_ended_job_stays_as_it_is(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    (part,) = ledgers.begin(ledger, slices=1)
    ledgers.complete(ledger, part, 1)
    ledgers.finish(ledger, part, JobState.COMPLETED)
    assert "had ended already: completed" in said(capsys, "job", "stop", JOB)
    assert "only a stopped job can be resumed" in said(capsys, "job", "resume", JOB, code=1)
    assert "Nothing failed" in said(capsys, "job", "retry", JOB)
    assert answer(capsys, "job", "retry", JOB) == []


def test_retrying_runs_the_entities_in_which_something_failed(
    ledger: Ledger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    documents, tickets = ledgers.begin(ledger, entities=["Document", "Ticket"], slices=1)
    ledgers.complete(ledger, documents, 1, failed=1)
    ledgers.finish(ledger, documents, JobState.COMPLETED_WITH_ERRORS)
    ledgers.complete(ledger, tickets, 1)
    ledgers.finish(ledger, tickets, JobState.COMPLETED)
    asked: list[tuple[object, dict[str, object]]] = []

    def run(_self: Instep, entities: object, **options: object) -> list[object]:
        asked.append((entities, options))
        return []

    monkeypatch.setattr(Instep, "run", run)
    said(capsys, "job", "retry", JOB, "--engine", "inline")
    ((entities, options),) = asked
    assert entities == ["Document"]
    assert (options["retry_failures"], options["engine"]) == (True, "inline")


def test_a_running_job_is_not_retried(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    ledgers.begin(ledger)
    assert "has not ended" in said(capsys, "job", "retry", JOB, code=1)
    ledgers.stop(ledger)
    assert "instep job resume" in said(capsys, "job", "retry", JOB, code=1)


def test_ids_that_name_no_job_or_several_are_answered_with_help(
    ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    ledgers.begin(ledger)
    ledgers.begin(ledger, job_id=OTHER, entities=["Ticket"], worker=BOB)
    several = said(capsys, "job", "show", "1f0c", code=1)
    assert JOB in several
    assert OTHER in several
    assert "instep jobs" in said(capsys, "job", "show", "beef", code=1)
    assert "at least 4" in said(capsys, "job", "show", "1f", code=1)
    assert main(["job", "show", "beef", "--json"]) == 1
    error = json.loads(capsys.readouterr().out)
    assert error["error"]["exit_code"] == 1


def test_wrong_use_is_64_and_no_command_shows_the_help(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "job", "fly", "1f0c", code=64)
    said(capsys, "job", "show", code=64)
    said(capsys, "jobs", "--limit", "0", code=64)
    assert "resume" in said(capsys, "job")


def test_the_newest_failures_are_listed_as_many_as_were_asked_for(
    folder: Path, ledger: Ledger, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    with (folder / "instep.yaml").open("a") as file:
        file.write("  Note:\n    source: {type: files, path: docs}\n    embed: {type: hashing}\n")
    older, newer = ledgers.begin(ledger, entities=["Document", "Note"], slices=2)
    ledgers.complete(ledger, older, 1, failed=2)
    clock.sleep(60)
    ledgers.complete(ledger, newer, 1, failed=2)
    for named in ((), ("Document", "Note")):
        listed = answer(capsys, "failures", *named, "--limit", "3")
        assert [each["ref"] for each in listed] == ["Note@global", "Note@global", "Document@global"]
    assert [each["ref"] for each in answer(capsys, "failures", "Document", "--limit", "1")] == ["Document@global"]
    assert [each["ref"] for each in answer(capsys, "failures", "Document")] == ["Document@global"] * 2
