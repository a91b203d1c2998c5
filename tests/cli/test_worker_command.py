"""`instep worker`: what it hands on, what it prints, and how it ends."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import instep
from instep.cli import main
from instep.cli.log_progress import LogProgress
from instep.entities.setup import EntitySetup
from instep.errors import UserError
from instep.jobs import serve as serving_loop
from instep.ledger.open import open_ledger
from instep.planning.context import Context
from instep.system import SystemClock
from tests.e2e import corpus

Serve = Callable[[Sequence[EntitySetup], Context, bool], None]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, and the current folder in it."""
    corpus.write(tmp_path / "docs", range(3))
    corpus.project(tmp_path, tmp_path / "docs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def serving(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Serve], None]:
    """Puts another service in the place of the real one."""

    def install(serve: Serve) -> None:
        def stand_in(
            setups: Sequence[EntitySetup],
            context: Context,
            *,
            until_idle: bool = False,
            anew: Callable[[], Sequence[EntitySetup]],
            **_options: object,
        ) -> None:
            assert [each.ref for each in anew()] == [each.ref for each in setups]
            serve(setups, context, until_idle)

        monkeypatch.setattr(serving_loop, "serve", stand_in)

    return install


def events(_setups: Sequence[EntitySetup], context: Context, _until_idle: bool) -> None:
    context.progress.say("Document", "takes part in job 1f0c")
    context.progress.advance("Document", 40)
    context.progress.advance("Document", 2)
    context.progress.say("Document", "job 1f0c: finished")


def test_a_worker_serves_the_entities_and_options_that_were_given(serving: Callable[[Serve], None]) -> None:
    seen: list[tuple[list[str], bool, str]] = []

    def serve(setups: Sequence[EntitySetup], context: Context, until_idle: bool) -> None:
        seen.append(([str(each.ref) for each in setups], until_idle, context.choose(setups[0], 10**9).name))

    serving(serve)
    assert main(["worker", "Document", "--until-idle", "--engine", "inline"]) == 0
    assert main(["worker", "--engine", "spark"]) == 0
    assert seen == [(["Document@global"], True, "inline"), (["Document@global"], False, "spark")]


def test_every_event_is_one_line_with_its_time(
    serving: Callable[[Serve], None], capsys: pytest.CaptureFixture[str]
) -> None:
    serving(events)
    assert main(["worker"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert [line.partition(" ")[2] for line in lines] == [
        "Document: takes part in job 1f0c",
        "Document: 42 done",
        "Document: job 1f0c: finished",
    ]
    assert all(time.strptime(line.partition(" ")[0], "%H:%M:%S") for line in lines)


def test_with_json_each_line_is_a_record(serving: Callable[[Serve], None], capsys: pytest.CaptureFixture[str]) -> None:
    serving(events)
    assert main(["worker", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    records = [json.loads(line) for line in out.splitlines()]
    assert [each["event"] for each in records] == ["say", "done", "done", "say"]
    assert all(each["at"] > 1_700_000_000_000 and each["entity"] == "Document" for each in records)
    assert records[1]["units"] == 40


def test_a_long_wave_is_heard_of_every_ten_seconds() -> None:
    now = [0.0]
    stream = io.StringIO()
    diary = LogProgress(stream, lambda: now[0], lambda: f"{now[0]:.0f}")
    for second in range(1, 25):
        now[0] = float(second)
        diary.advance("Document", 1_000)
    assert stream.getvalue().splitlines() == [
        "10 Document: 10,000 done",
        "20 Document: 10,000 done",
    ]


def test_what_a_failed_wave_had_done_is_said_to_be_done_again() -> None:
    stream = io.StringIO()
    log = LogProgress(stream, lambda: 0.0, lambda: "0")
    log.advance("Document", -54)
    log.advance("User", 7)
    log.advance("User", -7)
    log.say("Document", "waiting: Spark is out of reach")
    assert stream.getvalue().splitlines() == [
        "0 Document: 54 to be done again",
        "0 Document: waiting: Spark is out of reach",
    ]


def test_quiet_says_nothing(serving: Callable[[Serve], None], capsys: pytest.CaptureFixture[str]) -> None:
    serving(events)
    assert main(["worker", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_requested_stop_is_a_clean_exit(
    serving: Callable[[Serve], None], capsys: pytest.CaptureFixture[str], signum: signal.Signals
) -> None:
    def serve(_setups: Sequence[EntitySetup], _context: Context, _until_idle: bool) -> None:
        signal.raise_signal(signum)

    serving(serve)
    before = signal.getsignal(signal.SIGTERM)
    assert main(["worker"]) == 0
    assert "stopped" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_while_an_object_is_finalized_is_not_lost(
    serving: Callable[[Serve], None], capsys: pytest.CaptureFixture[str], signum: signal.Signals
) -> None:
    class Dying:
        def __del__(self) -> None:
            signal.raise_signal(signum)

    def serve(_setups: Sequence[EntitySetup], _context: Context, _until_idle: bool) -> None:
        Dying()  # Python drops what this raises.
        threading.Event().wait(60)

    serving(serve)
    assert main(["worker"]) == 0
    assert "stopped" in capsys.readouterr().err


def test_errors_of_the_service_are_reported_as_everywhere(
    serving: Callable[[Serve], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def serve(_setups: Sequence[EntitySetup], _context: Context, _until_idle: bool) -> None:
        raise UserError("the ledger is away", where="server-1:5432", hint="Start it.")

    serving(serve)
    assert main(["worker"]) == 1
    assert capsys.readouterr().err == "error: server-1:5432: the ledger is away\nhint: Start it.\n"


def test_an_unknown_entity_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worker", "Documnet"]) == 1
    assert "Document" in capsys.readouterr().err.split("hint")[1]


def test_an_idle_worker_ends_when_nothing_is_left_to_do(folder: Path) -> None:
    assert main(["worker", "--until-idle", "--engine", "inline"]) == 0
    assert instep.load(folder).workers() == []


def test_a_worker_names_an_entity_of_many_namespaces_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ticket = "  Ticket: {source: {type: spark, path: tickets}, key: [id], scope: path}\n"
    with (folder / "instep.yaml").open("a") as project:
        project.write(ticket + "namespaces: [1/2, 1/3]\n")
    pq.write_table(pa.table({"id": [1], "path": ["1/2/"]}), folder / "tickets")
    assert main(["worker", "--until-idle", "--engine", "inline"]) == 0
    assert "is ready for jobs on Document, Ticket\n" in capsys.readouterr().err


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_real_worker_leaves_the_ledger_when_asked_to_stop(folder: Path, signum: signal.Signals) -> None:
    url = instep.load(folder).project.ledger_url
    with closing(open_ledger(url, clock=SystemClock())) as ledger:
        process = subprocess.Popen(
            [sys.executable, "-m", "instep", "worker", "--engine", "inline"],
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stderr is not None
            assert "is ready for jobs on Document" in process.stderr.readline()
            (found,) = ledger.workers.all()
            assert (found.kind, found.pid) == ("worker", process.pid)
            process.send_signal(signum)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 0, errors
        assert "stopped" in errors
        assert "Traceback" not in errors
        assert ledger.workers.all() == []


def test_a_worker_builds_what_a_schedule_says_and_names_it_in_the_wants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus.write(tmp_path / "docs", range(3))
    corpus.project(tmp_path, tmp_path / "docs", entity='schedule: {cron: "0 3 * * *", zone: Europe/Berlin}')
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["worker", "--until-idle"]) == 0
    capsys.readouterr()
    assert main(["wants", "--all", "--json"]) == 0
    (want,) = json.loads(capsys.readouterr().out)
    assert (want["state"], want["by"], want["refs"]) == ("Successful", "schedule", ["Document@global"])
    assert main(["search", "Document 2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ('"61 * * * *"', "is not a cron expression: bad minute"),
        ('{cron: "* * * * *", zone: Mars}', "is not a time zone such as UTC or Europe/Berlin"),
        ("5", "must be a cron expression in quotes"),
        ('{cron: "* * * * *", zon: UTC}', "unknown key (did you mean zone?); allowed: cron, zone"),
    ],
)
def test_a_wrong_schedule_is_refused_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], schedule: str, said: str
) -> None:
    file = corpus.project(tmp_path, tmp_path, entity=f"schedule: {schedule}")
    assert main(["plan", "--project", str(tmp_path)]) == 1
    lines = file.read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if line.startswith("    schedule:"))
    error = capsys.readouterr().err
    assert said in error
    assert f"instep.yaml:{number}" in error
