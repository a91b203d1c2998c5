"""A Connect server and its sessions: the engine contract runs in a process of its own; files are lost; it freezes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import instep
from tests.servers.connect import ConnectServer
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.proof]

ROOT = Path(__file__).parents[2]


INSTEP = [sys.executable, "-m", "instep"]

#: Waits for less long for a server that does not answer.
HASTY = (
    "import sys; from instep.pipeline.engine import connect_channel; connect_channel.ANSWER_SECONDS = 2.0; "
    "from instep.__main__ import main; sys.exit(main())"
)


@pytest.fixture(scope="module")
def server() -> Iterator[ConnectServer]:
    made = ConnectServer()
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize(
    "which",
    [
        "one_task or moves_rows or fails_alone or keeps_its_hint or comes_back_once or all_rows_are_written",
        pytest.param("", id="all of it", marks=pytest.mark.long),
    ],
)
def test_the_engine_contract_holds_on_connect(server: ConnectServer, which: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-k",
        which,
        "tests/engine/connect_contract.py",
    ]
    ran = subprocess.run(
        command, cwd=ROOT, env=asking(server), capture_output=True, text=True, timeout=900, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def asking(server: ConnectServer) -> dict[str, str]:
    ours = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "SPARK_", "PYSPARK_"))}
    return ours | {"SPARK_REMOTE": server.address}


_DECLARED = """
name: notes
engine: spark
targets: {{main: {{type: lance, uri: .instep/index}}}}
entities:
  Document:
    source: {{type: files, path: docs}}
    embed: {{type: hashing, dimensions: 8}}
    transform: {module}:rows
"""

#: Its tasks say that they have begun, and then wait until they may go on.
_WAITING = """
import time
from pathlib import Path

HERE = Path({here!r})

def rows(frame):
    return frame.mapInArrow(wait, frame.schema)

def wait(batches):
    (HERE / "begun").touch()
    while not (HERE / "go").exists():
        time.sleep(0.05)
    yield from batches
"""


#: Another user's session: it is sent a file, and ends before any task of it has run.
_BRIEF = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).create()
spark.addArtifacts(sys.argv[2], pyfile=True)
spark.stop()
"""

#: Its archive is gone from the server when the first tasks look for it.
_LOST = """
from pathlib import Path

HERE = Path(__file__)

def rows(frame):
    if not HERE.with_name("lost").exists():
        for each in Path({folder!r}).glob("artifacts*/*/pyfiles/*.zip"):
            each.unlink()
            HERE.with_name("lost").touch()
    return frame.mapInArrow(same, frame.schema)

def same(batches):
    yield from batches
"""


def a_project(folder: Path, module: str, code: str) -> None:
    (folder / "docs").mkdir()
    (folder / "docs/tides.md").write_text("The moon pulls the sea.\n")
    (folder / "instep.yaml").write_text(_DECLARED.format(module=module))
    (folder / f"{module}.py").write_text(code)


@pytest.mark.long  # How code reaches the tasks, or does not, is seen below, too.
def test_files_of_a_session_that_has_ended_are_asked_of_no_other(server: ConnectServer, tmp_path: Path) -> None:
    """A server that PySpark starts gives them to all."""
    (tmp_path / "theirs.py").touch()
    brief = [sys.executable, "-c", _BRIEF, server.address, str(tmp_path / "theirs.py")]
    subprocess.run(brief, env=asking(server), timeout=300, check=True)
    (tmp_path / "lost").touch()
    a_project(tmp_path, "mine", _LOST.format(folder=str(server.folder)))
    run = [*INSTEP, "run", "--project", str(tmp_path)]
    ran = subprocess.run(run, env=asking(server), capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "waiting: " not in ran.stderr


def test_code_that_does_not_reach_the_tasks_is_sent_again_and_no_documents_fault(
    server: ConnectServer, tmp_path: Path
) -> None:
    a_project(tmp_path, "mine", _LOST.format(folder=str(server.folder)))
    run = [*INSTEP, "run", "--project", str(tmp_path)]
    ran = subprocess.run(run, env=asking(server), capture_output=True, text=True, timeout=300, check=False)
    assert (tmp_path / "lost").exists()
    assert ran.returncode == 0, ran.stderr
    assert list(instep.load(tmp_path).failures()) == []


def test_a_server_that_freezes_in_mid_wave_is_said_to_be_away(server: ConnectServer, tmp_path: Path) -> None:
    """What waits for it would do so for minutes."""
    a_project(tmp_path, "waiting", _WAITING.format(here=str(tmp_path)))
    run = ["run", "--project", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-c", HASTY, *run], env=asking(server), stderr=subprocess.PIPE, text=True
    ) as process:
        until((tmp_path / "begun").exists)
        os.kill(server.jvm, signal.SIGSTOP)
        try:
            assert process.stderr is not None
            said = next(line for line in process.stderr if "waiting: " in line)
            assert said.endswith("waiting: Spark Connect does not answer any more: not within 4 s\n")
            process.send_signal(signal.SIGINT)
            rest = process.stderr.read()
        finally:
            (tmp_path / "go").touch()
            os.kill(server.jvm, signal.SIGCONT)
    assert process.returncode == 130, rest
    assert rest.splitlines()[-1] == "stopped; run again to resume"
    again = subprocess.run(
        [*INSTEP, *run], env=asking(server), capture_output=True, text=True, timeout=300, check=False
    )
    assert again.returncode == 0, again.stderr
    assert list(instep.load(tmp_path).failures()) == []
