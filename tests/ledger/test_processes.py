"""Several real processes on one SQLite ledger, and one that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from instep.domain.jobs import SliceState
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from instep.system import SystemClock
from tests.contracts.ledger import REF, claim_all, job_of, joined, outcome, plans, running
from tests.ledger.appenders import check_appenders


@pytest.fixture
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as executor:
        yield executor


def _open(path: Path) -> Ledger:
    return open_ledger(f"sqlite:///{path}", clock=SystemClock())


def _make_several(paths: list[Path]) -> int:
    for path in paths:
        _open(path).close()
    return len(paths)


def _claim_one_by_one(path: Path, worker: str) -> list[tuple[str, int]]:
    ledger = _open(path)
    claimed: list[tuple[str, int]] = []
    while claims := ledger.slices.claim("job", REF, worker, work=1, limit=1):
        claimed += [(claim.slice_id, claim.fence) for claim in claims]
    ledger.close()
    return claimed


def test_processes_that_make_one_ledger_at_once_all_succeed(tmp_path: Path, pool: ProcessPoolExecutor) -> None:
    paths = [tmp_path / f"{number}.db" for number in range(20)]
    assert list(pool.map(_make_several, [paths] * 4)) == [20] * 4


def test_processes_claim_every_slice_exactly_once(tmp_path: Path, pool: ProcessPoolExecutor) -> None:
    path = tmp_path / "ledger.db"
    ledger = _open(path)
    running(ledger, plans(200, units=1))
    workers = ["bob", "cid", "dan", "eva"]
    joined(ledger, *workers)
    claimed = [claim for part in pool.map(_claim_one_by_one, [path] * 4, workers) for claim in part]
    assert sorted(claimed) == sorted((f"job.0.{number}", 1) for number in range(200))
    assert job_of(ledger, "job").slices == {SliceState.PROCESSING: 200}
    ledger.close()


def test_events_of_several_processes_are_seen_once_and_in_order(tmp_path: Path) -> None:
    check_appenders(f"sqlite:///{tmp_path}/ledger.db")


def _die_after_completing(path: Path) -> None:
    ledger = _open(path)
    part = running(ledger, plans(4))
    claims = claim_all(ledger)
    ledger.slices.complete(part, "ann", list(map(outcome, claims[:2])), job_id="job")
    os.kill(os.getpid(), signal.SIGKILL)


def test_completed_slices_survive_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    script = f"import pathlib; from {__name__} import _die_after_completing as die; die(pathlib.Path({str(path)!r}))"
    died = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2], check=False)
    assert died.returncode == -signal.SIGKILL
    ledger = _open(path)
    job = job_of(ledger, "job")
    assert job.slices == {SliceState.COMPLETED: 2, SliceState.PROCESSING: 2}
    assert job.counts.written == 4
    assert len(ledger.documents.entries(job.part(REF).part.instance)) == 4
    ledger.close()


def test_opening_a_ledger_imports_neither_alembic_nor_anything_heavy(tmp_path: Path) -> None:
    script = f"""
import sys
from instep.ledger.open import open_ledger
from instep.system import SystemClock
open_ledger("sqlite:///{tmp_path}/ledger.db", clock=SystemClock(), read_only=True).close()
for _ in range(2):  # makes it, then opens it
    open_ledger("sqlite:///{tmp_path}/ledger.db", clock=SystemClock()).close()
heavy = {{"alembic", "pyarrow", "numpy", "lance", "pyspark", "pydantic", "pandas"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", script], check=True)
