"""`instep run` on Spark is killed with everything it started, in mid-wave; a worker finishes its job."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from instep.domain.jobs import SliceState
from tests.soak.fleet import TIMEOUT_SECONDS
from tests.soak.records import Records
from tests.soak.site import Site

#: Runs in Spark's own processes: says that it does, and goes on only when it may.
TRANSFORM = """
import pathlib
import time

HERE = pathlib.Path({folder!r})

def held(batches):
    (HERE / "in-mid-wave").touch()
    while (HERE / "hold").exists():
        time.sleep(0.05)
    yield from batches

def hold(rows):
    return rows.mapInArrow(held, rows.schema)
"""

INSTEP = "import sys; from instep.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.long  # The tests of tables kill a run on Spark, too.
@pytest.mark.spark
def test_a_run_on_spark_that_is_killed_in_mid_wave_is_finished_by_a_worker(tmp_path: Path) -> None:
    site = Site(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}", seed=1)
    site.prepare(200, entity="buckets: 8\ntransform: held:hold")
    (site.project / "held.py").write_text(TRANSFORM.format(folder=str(tmp_path)))
    hold = tmp_path / "hold"
    hold.touch()
    log = tmp_path / "log"
    run = _start(site, log, "run", "--quiet")
    try:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not (tmp_path / "in-mid-wave").exists():
            assert run.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
    finally:
        # Python first, before it sees what becomes of the others; then the JVM and its Python workers.
        others = psutil.Process(run.pid).children(recursive=True)
        run.kill()
        for each in others:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        run.wait()
        hold.unlink()
    records = Records(site.engine)
    assert {row.state for row in records.slices()} >= {SliceState.PROCESSING}

    worker = _start(site, log, "worker", "--until-idle")
    assert worker.wait() == 0, log.read_text()
    assert "is dead" in log.read_text()
    assert set(records.jobs().values()) == {"COMPLETED"}
    assert len(records.jobs()) == 1
    assert records.taken_over() > 0
    assert records.failures() == 0
    assert records.workers() == set()
    assert site.wrong().total == 0
    site.close()


def _start(site: Site, log: Path, *command: str) -> subprocess.Popen[bytes]:
    # In an activated environment `python3` is this Python; Spark's workers look for that.
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-c", INSTEP, *command],
            cwd=site.project,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
