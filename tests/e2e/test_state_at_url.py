"""State files in an object store, beside a ledger on PostgreSQL: servers that die, share a job, or find it away."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.cli import main
from instep.domain.jobs import JobState
from instep.entities import setup
from instep.errors import Away
from instep.ledger import documents, plans
from instep.targets.lance import LanceTarget
from tests.servers.ledgers import LedgerDatabase, postgres_ledger
from tests.servers.s3 import S3Server, running_s3

from .tickets import Desk

DOCUMENTS = 40

#: Runs the project with small waves, and a file for every plan and of all documents. It dies at the first call of
#: `owner.name`, before or after it, if one is named.
_RUN = """
import functools, os, pkgutil, signal, sys
import instep
import instep.entities.setup as setup
from instep.ledger import documents, plans
owner, name, when = sys.argv[1:]
setup.MOST_CLAIMS, plans._FILE_ROWS, documents._BASE_ROWS = 1, 1, 1
if owner:
    place = pkgutil.resolve_name(owner)
    inner = getattr(place, name)
    @functools.wraps(inner)
    def last(*args, **kwargs):
        if when == "after":
            inner(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(place, name, last)
(result,) = instep.load(".").run()
assert result.problem is None, result.problem
"""

STORE, BASES = "instep.ledger.state_files:StoreFiles", "instep.ledger.bases:BaseFiles"
PARTS, DOCUMENTS_STORE = "instep.ledger.parts:Parts", "instep.ledger.documents:Documents"
STEPS = [
    pytest.param("instep.ledger.plans", "_written", "before", id="before the plan is sent"),
    pytest.param("instep.ledger.plans:Plans", "written", "after", id="before the job is stored"),
    pytest.param(PARTS, "_plan", "after", id="when the job is stored"),
    pytest.param(STORE, "part", "after", id="when a slice is read"),
    pytest.param("instep.targets.lance:LanceTarget", "commit", "after", id="in a wave"),
    pytest.param(PARTS, "_finish", "after", id="when the job has ended"),
    pytest.param(BASES, "write", "before", id="before the base is sent"),
    pytest.param(DOCUMENTS_STORE, "_name", "before", id="before the base is named"),
    pytest.param(DOCUMENTS_STORE, "_name", "after", id="when the base is named"),
    pytest.param(BASES, "remove_all_but", "before", id="before an old base is removed"),
    pytest.param(STORE, "remove", "before", id="before a plan is removed"),
]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> S3Server:
    for name, value in running_s3().environment().items():
        monkeypatch.setenv(name, value)
    return running_s3()


@pytest.fixture
def database() -> LedgerDatabase:
    found = postgres_ledger()
    found.empty()
    return found


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: S3Server, database: LedgerDatabase) -> Desk:
    monkeypatch.setattr(plans, "_FILE_ROWS", 1)
    monkeypatch.setattr(documents, "_BASE_ROWS", 1)
    monkeypatch.setattr(setup, "MOST_CLAIMS", 1)
    made = Desk(tmp_path / "desk", "parquet", entity="depends_on: []")
    made.declare()
    with (made.root / "instep.yaml").open("a") as file:
        file.write(f"ledger: {database.url}\nstate: {store.url(tmp_path.name)}\n")
    made.fill(DOCUMENTS)
    return made


def files(store: S3Server, tmp_path: Path, suffix: str) -> list[str]:
    """Without their folder, which is called after the ledger's id."""
    found = store.files().find(f"{store.bucket}/{tmp_path.name}")
    return [each for each in found if each.endswith(suffix)]


def begin(desk: Desk, *step: str) -> subprocess.Popen[str]:
    code = [sys.executable, "-c", _RUN, *(step or ("", "", ""))]
    return subprocess.Popen(code, cwd=desk.root, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def recorded(database: LedgerDatabase) -> set[str]:
    return {str(name) for (name,) in database.execute("SELECT base FROM manifests WHERE base IS NOT NULL")}


def test_a_run_keeps_its_state_in_the_store_and_reads_it_again(
    desk: Desk, store: S3Server, tmp_path: Path, database: LedgerDatabase
) -> None:
    assert desk.run().state is JobState.COMPLETED
    (base,) = files(store, tmp_path, ".arrow")
    assert recorded(database) == {Path(base).stem}
    assert files(store, tmp_path, ".plan") == []
    assert not list(desk.root.rglob("*.arrow")) + list(desk.root.rglob("*.plan*"))
    # What the base says is what counts: it is read, and not the rows.
    database.execute("UPDATE documents SET version = 'not looked at', size = 7")
    assert desk.run().state is None, "nothing has changed"
    assert desk.wrong() == ""


@pytest.mark.proof
@pytest.mark.parametrize(("owner", "name", "when"), STEPS)
def test_killed_at_a_step(
    desk: Desk, store: S3Server, tmp_path: Path, database: LedgerDatabase, owner: str, name: str, when: str
) -> None:
    ended = begin(desk, owner, name, when)
    _, said = ended.communicate()
    assert ended.returncode == -signal.SIGKILL, said
    assert desk.run().state in (JobState.COMPLETED, None)
    assert desk.wrong() == ""
    desk.change(1, body="Another text.")
    desk.save()
    assert desk.run().state is JobState.COMPLETED
    assert desk.wrong() == ""
    assert files(store, tmp_path, ".plan") == []
    assert recorded(database) <= {Path(each).stem for each in files(store, tmp_path, ".arrow")}


def test_two_servers_share_a_plan_and_one_of_them_dies(desk: Desk, store: S3Server, tmp_path: Path) -> None:
    """Both run at once; the job's plan is where both reach it."""
    one, two = begin(desk, "instep.targets.lance:LanceTarget", "commit", "after"), begin(desk)
    said = [each.communicate()[1] for each in (one, two)]
    assert one.returncode in (-signal.SIGKILL, 0), said
    assert two.returncode == 0, said
    desk.run()
    assert desk.wrong() == ""
    assert files(store, tmp_path, ".plan") == []


@pytest.mark.parametrize("harm", ["lost", "damaged"])
def test_a_plan_that_is_lost_or_damaged_is_said_and_made_anew(
    desk: Desk, store: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    commit, lost = LanceTarget.commit, list[str]()

    def losing(*args: Any, **kwargs: Any) -> int:
        version = commit(*args, **kwargs)
        if not lost:
            lost.extend(files(store, tmp_path, ".plan"))
            for each in lost:
                if harm == "lost":
                    store.files().rm_file(each)
                else:
                    store.files().pipe_file(each, b"x" * store.files().info(each)["size"])
        return version

    monkeypatch.setattr(LanceTarget, "commit", losing)
    result = desk.run()
    assert lost
    assert any("plan" in note and "is lost or damaged" in note for note in result.notes)
    assert result.state is JobState.COMPLETED
    assert desk.wrong() == ""
    assert files(store, tmp_path, ".plan") == []
    assert [job.state for job in instep.load(desk.root).jobs()][:2] == [JobState.COMPLETED, JobState.FAILED]


@pytest.mark.proof
def test_a_store_that_goes_away_in_the_middle_is_an_outage_which_spends_no_attempts(
    desk: Desk, store: S3Server, database: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = LanceTarget.commit

    def last(*args: Any, **kwargs: Any) -> int:
        version = commit(*args, **kwargs)
        store.kill()
        return version

    monkeypatch.setattr(LanceTarget, "commit", last)
    try:
        with pytest.raises(Away, match="the state files at") as told:
            desk.run()
    finally:
        monkeypatch.setattr(LanceTarget, "commit", commit)
        store.revive()
    assert store.password not in str(told.value)
    states = set(database.execute("SELECT state, attempts FROM slices"))
    assert states == {("COMPLETED", 0), ("PENDING", 0)}
    assert desk.failures() == {}
    assert desk.run().state is JobState.COMPLETED
    assert desk.wrong() == ""


@pytest.mark.parametrize("when", ["before the plan", "with nothing to do"])
def test_a_store_that_is_away_at_the_beginning_is_exit_75(
    desk: Desk, store: S3Server, when: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(desk.root)
    if when == "with nothing to do":
        desk.run()
    store.kill()
    try:
        assert main(["run"]) == 75
    finally:
        store.revive()
    said = "".join(capsys.readouterr())
    assert "the state files at" in said
    assert store.password not in said
    desk.run()
    assert desk.wrong() == ""
