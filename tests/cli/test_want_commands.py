"""`instep want`, `wants`, `cancel`, `history`, `taint`, `rebuild`, `expire`: what they print, JSON, errors."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import instep
from instep.cli import main
from instep.domain.events import DependencyMissed
from instep.domain.jobs import JobState
from instep.domain.refs import PartitionRef
from instep.errors import UserError
from instep.ledger.ledger import Ledger
from tests.cli import ledgers
from tests.cli.ledgers import JOB
from tests.cli.saying import answer, said, widest
from tests.doubles.clock import VirtualClock
from tests.e2e import corpus

REF = PartitionRef("Document")
COMMANDS = ("want", "wants", "history", "taint", "rebuild", "expire")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, and the current folder in it."""
    corpus.write(tmp_path / "docs", range(3))
    corpus.project(tmp_path, tmp_path / "docs", entity="ttl: 1h")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def build(ledger: Ledger, job_id: str = JOB) -> str:
    """A Live instance."""
    (part,) = ledgers.begin(ledger, job_id=job_id, slices=1)
    ledgers.complete(ledger, part, 1, job_id=job_id)
    ledgers.finish(ledger, part, JobState.COMPLETED, job_id=job_id)
    return part.instance


def iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()


# Before there is anything.


def test_looking_and_refused_acts_make_no_ledger(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No want is open" in said(capsys, "wants")
    assert "No wants" in said(capsys, "wants", "--all")
    assert "`instep run` builds it" in said(capsys, "history", "Document")
    assert answer(capsys, "history", "Document") == answer(capsys, "wants") == answer(capsys, "expire") == []
    assert "no want is known" in said(capsys, "cancel", "1f0c", code=1)
    assert "next `instep run`" in said(capsys, "taint", "Document", code=1)
    assert "next `instep run`" in said(capsys, "expire", "Document", code=1)
    assert "Nothing is older than its time to live" in said(capsys, "expire")
    assert not (folder / ".instep").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_an_undeclared_entity_is_refused_with_the_declared_ones(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert "Declared: Document." in said(capsys, command, "Dokument", code=1)
    assert "Declared: Document." in said(capsys, command, "Document@everywhere", code=1)
    assert "Document@global" in said(capsys, command, "Document@42/9970", code=1)
    assert main([command, "Dokument", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["hint"] == "Declared: Document."
    assert not (folder / ".instep").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--fresh-within", "1y"], "such as 30s, 15min, 1h"),
        (["--fresh-within", "-1h"], "such as 30s, 15min, 1h"),
        (["--as-of", "yesterday"], "such as 2026-01-31"),
        (["--as-of", "2026-02-30"], "such as 2026-01-31"),
        (["--as-of", "1969-01-01T00:00Z"], "before 1970"),
    ],
)
def test_wrong_times_are_wrong_use(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert words in said(capsys, "want", "Document", *options, code=64)
    said(capsys, "history", code=64)


# Wants.


def test_a_want_names_its_state_and_the_next_step(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "want", "Document", "Document@global")
    assert "is Idle" in text
    assert "Document: not built yet" in text
    assert "next `instep run` or worker builds it" in text
    (want,) = ledger.wants.newest()
    assert want.refs == ("Document@global",)
    assert " on " in want.by
    (part,) = ledgers.begin(ledger, slices=1)
    text = said(capsys, "want", "Document")
    assert "is Building" in text
    assert f"job {JOB[:8]} builds it" in text
    assert "satisfied when that has ended well" in text
    ledgers.complete(ledger, part, 1)
    ledgers.finish(ledger, part, JobState.COMPLETED)
    text = said(capsys, "want", "Document", "--fresh-within", "1h")
    assert "is Successful" in text
    assert "Document is there as of " in text


def test_a_want_for_fresher_data_names_live_and_wanted_times(
    ledger: Ledger, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    build(ledger)
    clock.sleep(7200)
    text = said(capsys, "want", "Document", "--fresh-within", "1h30m")
    assert "Document: Live as of " in text
    assert "wanted as of" in text
    assert "looks for changes" in text
    (shown,) = answer(capsys, "wants")
    assert (shown["state"], shown["fresh_within"]) == ("Idle", 5_400_000)
    assert shown["needed"] == clock.now() - 5_400_000
    text = said(capsys, "want", "Document", "--as-of", iso(clock.now() + 1_000))
    assert "A worker looks for changes then" in text
    text = said(capsys, "want", "Document", "--generation", "v2")
    assert "Document (v2): not built yet" in text
    assert "`instep run --generation v2` or worker builds it" in text
    assert "cannot name a generation" in said(capsys, "want", "Document", "--generation", "v 2", code=1)


def test_a_time_without_a_zone_is_local(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    local = datetime(2026, 7, 1, 12, 30).astimezone()
    shown = answer(capsys, "want", "Document", "--as-of", "2026-07-01T12:30")
    assert shown["as_of"] == round(local.timestamp() * 1000)
    shown = answer(capsys, "want", "Document", "--as-of", "2026-07-01T12:30+02:00")
    assert shown["as_of"] == round(datetime(2026, 7, 1, 10, 30, tzinfo=UTC).timestamp() * 1000)


def test_a_job_that_began_too_early_does_not_satisfy_a_want(
    ledger: Ledger, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    ledgers.begin(ledger)
    clock.sleep(3600)
    text = said(capsys, "want", "Document", "--fresh-within", "1min")
    assert f"job {JOB[:8]} builds it, up to " in text
    assert "next `instep run` or worker" in text


def test_wants_are_listed_newest_first_in_eighty_columns(
    ledger: Ledger, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    first = answer(capsys, "want", "Document")["id"]
    clock.sleep(3 * 60)
    second = answer(capsys, "want", "Document", "--as-of", iso(clock.now() - 1_000))["id"]
    third = answer(capsys, "want", "Document", "--as-of", "2040-01-31T00:00")["id"]
    text = said(capsys, "wants", "Document")
    assert widest(text) <= 80
    rows = [line.split() for line in text.splitlines() if " Document " in line]
    assert [row[0] for row in rows] == [third[:8], second[:8], first[:8]]
    assert rows[0][1:4] == ["Idle", "Document", "2040-01-31"]
    assert rows[2][1:7] == ["Idle", "Document", "any", "3", "min", "ago"]
    assert "Wants that can begin now are built by a worker, or by: instep run\n" in text
    assert [each["id"] for each in answer(capsys, "wants", "--limit", "1")] == [third]


def test_a_canceled_want_is_listed_with_its_reason(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    want = answer(capsys, "want", "Document")["id"]
    ledgers.begin(ledger)
    text = said(capsys, "cancel", want[:8], "--why", "asked twice")
    assert f"Want {want[:8]} is canceled." in text
    assert f"instep job stop {JOB[:8]}" in text
    assert answer(capsys, "wants") == []
    assert "asked twice" in said(capsys, "wants", "--all")
    assert answer(capsys, "cancel", want)["state"] == "Canceled"
    assert "no want begins with" in said(capsys, "cancel", "beef", code=1)


def test_a_want_that_waits_for_others_names_them(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    (part,) = ledgers.begin(ledger)
    missed = DependencyMissed(job=JOB, instances=(part.instance,), want="cccc3333-0", missing=("Ticket@global",))
    ledger.events.append([missed])
    assert "want cccc3333" in said(capsys, "want", "Document")
    text = said(capsys, "wants")
    assert widest(text) <= 80
    assert "UpstreamBuilding" in text
    assert "Ticket" in text


# Instances.


def test_taint_names_the_served_instance_and_the_next_step(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    uuid = build(ledger)
    text = said(capsys, "taint", "Document", "--why", "broken export")
    assert f"instance {uuid[:8]} is tainted. It is served until there is a new one." in text
    assert "The next `instep run` builds it." in text
    assert "instep want Document" in text
    assert "next `instep run`" in said(capsys, "taint", "Document", code=1)
    assert "is already waiting to be built (made for: taint)" in said(capsys, "rebuild", "Document")
    said(capsys, "want", "Document")
    assert "It is wanted: the next `instep run` or worker builds it." in said(capsys, "rebuild", "Document")


def test_a_rebuild_that_was_refused_is_held_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "run")
    for number in range(2):
        corpus.path(folder / "docs", number).write_bytes(b"\xff\xfe\x00 no text")
    said(capsys, "taint", "Document")
    assert "2 of 3 documents that are served failed" in said(capsys, "run", code=1)
    table = said(capsys, "run", code=3)
    assert "held back" in table
    assert "2 of 3 documents that are served failed" in table
    assert json.loads(said(capsys, "run", "--json", code=3))[0]["state"] == "HELD_BACK"
    assert "2 of 3 documents that are served failed" in said(capsys, "plan")
    assert "`instep run --retry-failures` builds it" in said(capsys, "rebuild", "Document")
    assert "`instep run --retry-failures` does that" in said(capsys, "taint", "Document", code=1)
    said(capsys, "run", "--retry-failures", code=1)
    corpus.write(folder / "docs", range(3))
    assert "held back" not in said(capsys, "run")


def test_an_instance_in_work_is_refused_with_its_job(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    ledgers.begin(ledger)
    for command in ("taint", "rebuild", "expire"):
        text = said(capsys, command, "Document", code=1)
        assert f"job {JOB[:8]} builds it" in text
        assert "instep job show" in text


def test_expire_takes_overdue_instances_and_named_ones(
    ledger: Ledger, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    first = build(ledger)
    assert "Nothing is older" in said(capsys, "expire")
    clock.sleep(3600)
    assert f"instance {first[:8]} has expired" in said(capsys, "expire")
    second = build(ledger, "2f0c0000-aaaa-4000-8000-000000000002")
    (left,) = answer(capsys, "expire", "Document")
    assert (left["changed"], left["old"]["uuid"], left["new"]["reason"]) == (True, second, "expiry")
    text = said(capsys, "history", "Document")
    assert "expired: its time to live of 1h was over" in text


def test_history_shows_every_instance_how_it_was_made_and_how_it_ended(
    ledger: Ledger, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    first = build(ledger)
    clock.sleep(60)
    said(capsys, "rebuild", "Document")
    second = build(ledger, "2f0c0000-aaaa-4000-8000-000000000002")
    said(capsys, "taint", "Document", "--why", "broken")
    text = said(capsys, "history", "Document")
    assert widest(text) <= 80
    third = answer(capsys, "history", "Document", "--limit", "1")[0]["uuid"]
    rows = [line.split() for line in text.splitlines() if line.startswith(" ") and line.split()[1:2] != []]
    shown = {row[0]: row[1:] for row in rows}
    assert shown[third[:8]][:2] == ["Missing", "taint"]
    assert shown[second[:8]][:3] == ["Tainted", "rebuild", "2f0c0000"]
    assert shown[first[:8]][:5] == ["Live", "(left)", "first", "build", JOB[:8]]
    assert shown[second[:8]][-1] == first[:8]
    assert f"{second[:8]}  window up to " in text
    assert ": tainted: broken" in text
    assert ": replaced for a rebuild" in text
    everything = answer(capsys, "history", "Document@global")
    assert [each["uuid"] for each in everything] == [third, second, first]
    assert [each["previous"] for each in everything] == [second, first, None]


# through real runs.


def test_a_want_a_taint_and_a_change_of_code_through_real_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    want = answer(capsys, "want", "Document")["id"]
    said(capsys, "run", "--quiet", "--engine", "inline")
    (ended,) = answer(capsys, "wants", "--all")
    assert (ended["id"], ended["state"]) == (want, "Successful")
    said(capsys, "taint", "Document", "--why", "broken")
    corpus.project(folder, folder / "docs", chunk=400)
    said(capsys, "run", "--quiet", "--engine", "inline")
    new, old = answer(capsys, "history", "Document")
    assert (old["state"], old["ended"], ended["instances"]) == ("Tainted", "tainted: broken", [old["uuid"]])
    assert (new["state"], new["reason"], new["previous"]) == ("Live", "taint", old["uuid"])
    assert new["counts"]["written"] == 3
    assert "chunker changed" in said(capsys, "history", "Document")
    said(capsys, "rebuild", "Document")
    said(capsys, "want", "Document")
    said(capsys, "worker", "--until-idle", "--engine", "inline")
    newest = answer(capsys, "history", "Document")[0]
    assert (newest["state"], newest["reason"]) == ("Live", "rebuild"), "a worker builds what is wanted"
    assert answer(capsys, "wants") == []


def test_status_gives_the_reason_of_a_pending_rebuild(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ("run", "--quiet", "--engine", "inline")
    said(capsys, *run)
    assert answer(capsys, "status")[0]["notes"] == []
    for command, how in (
        (("taint", "Document", "--why", "broken"), "tainted: broken"),
        (("rebuild", "Document"), "replaced for a rebuild"),
        (("expire", "Document"), "expired"),
    ):
        said(capsys, *command)
        assert f"Document@global: the served index is to be rebuilt ({how})" in said(capsys, "status")
        said(capsys, *run)
        assert answer(capsys, "status")[0]["notes"] == [], "there is something better"


def test_a_want_that_this_cannot_satisfy_gives_runs_nothing_to_do(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (folder / "instep.yaml").open("a") as file:
        file.write("  Ticket: {source: {type: files, path: docs}}\n")
    run = ("run", "Document", "--quiet", "--engine", "inline")
    said(capsys, "want", "Document", "--fresh-within", "1ms", "--generation", "v2")
    said(capsys, "want", "Document", "Ticket", "--fresh-within", "1ms")
    said(capsys, *run)
    assert [each["state"] for each in answer(capsys, "wants")] == ["Idle", "Idle"]
    (again,) = answer(capsys, *run)
    assert again["state"] == "UP_TO_DATE"


def test_the_python_api_takes_times_and_durations(folder: Path) -> None:
    project = instep.load(folder)
    moment = datetime(2026, 7, 1, tzinfo=UTC)
    made = project.want(["Document"], fresh_within=timedelta(hours=1), as_of=moment, by="ann")
    assert (made.fresh_within, made.as_of, made.by) == (3_600_000, 1_782_864_000_000, "ann")
    assert [each.id for each in project.wants("Document@global")] == [made.id]
    assert project.cancel_want(made.id[:8], why="enough").error == "canceled: enough"
    assert project.wants() == []
    assert not project.rebuild("Document").changed
    assert project.history("Document") == []
    with pytest.raises(UserError, match="fresher than now"):
        project.want(["Document"], fresh_within=timedelta(hours=-1))
