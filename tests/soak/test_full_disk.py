"""The disk of a SQLite ledger fills up in mid-job: a clear error, and the next run resumes when there is space."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.records import Records
from tests.soak.site import Site

DOCUMENTS = 3_000

#: Small waves and a real `instep run`.
RUN = (
    "import sys; import instep.entities.setup as setup; setup.MOST_CLAIMS = 1; "
    "from instep.cli import main; sys.exit(main(['run', '--engine', 'inline', '--quiet']))"
)
#: The same on a file that may not grow: SQLite itself says then that the disk is full.
LIMITED = """
from sqlalchemy import Engine, event

@event.listens_for(Engine, "connect")
def limit(connection, _):
    connection.execute("PRAGMA max_page_count = {pages}")
"""

#: A disk of its own in a namespace of its own, that grows between two runs: standard error and exit code of each.
ON_A_SMALL_DISK = """
mount -t tmpfs -o size={size} tmpfs {disk} || exit 99
run() {{ {python} -c "{code}" 2> "$1"; echo $? > "$1.code"; }}
run {folder}/first
mount -o remount,size=64m {disk}
run {folder}/second
cp {disk}/ledger.db* {folder}/
"""


def demand_full(code: int, said: str) -> None:
    assert code == 1, said
    assert "the disk is full: the ledger cannot be written" in said
    assert "Free some space and run the same command again" in said
    assert "Traceback" not in said


def demand_resumed(site: Site) -> None:
    records = Records(site.engine)
    assert set(records.jobs().values()) == {"COMPLETED"}
    assert len(records.jobs()) == 1
    assert records.failures() == 0
    assert records.indexed()[0] == DOCUMENTS
    assert site.wrong().total == 0
    site.close()


def prepared(folder: Path, ledger: Path) -> Site:
    site = Site(folder, f"sqlite:///{ledger}", seed=1)
    site.prepare(DOCUMENTS)
    return site


@pytest.mark.long
def test_a_ledger_that_may_not_grow_ends_the_run_and_the_next_one_resumes(tmp_path: Path) -> None:
    site = prepared(tmp_path, tmp_path / "ledger.db")

    def run(code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code], cwd=site.project, capture_output=True, text=True, check=False
        )

    first = run(LIMITED.format(pages=230) + RUN)
    demand_full(first.returncode, first.stderr)
    states = [row.state for row in Records(site.engine).slices()]
    assert "COMPLETED" in states
    assert "PENDING" in states
    second = run(RUN)
    assert second.returncode == 0, second.stderr
    demand_resumed(site)


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs Linux namespaces")
def test_a_real_disk_that_is_full_ends_the_run_and_the_next_one_resumes_when_it_has_grown(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    site = prepared(tmp_path, disk / "ledger.db")
    script = ON_A_SMALL_DISK.format(disk=disk, folder=tmp_path, python=sys.executable, code=RUN, size="1536k")
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
        cwd=site.project,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode in (1, 99) and not (tmp_path / "first").exists():
        pytest.skip(f"may not mount here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    said = {name: (tmp_path / name).read_text() for name in ("first", "second", "first.code", "second.code")}
    demand_full(int(said["first.code"]), said["first"])
    assert int(said["second.code"]) == 0, said["second"]
    site.ledger = f"sqlite:///{tmp_path / 'ledger.db'}"
    demand_resumed(site)
