"""A Connect server of its own: the contract runs against it in a process of its own; and it freezes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import instep
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


INSTEP = [sys.executable, "-m", "instep"]


@dataclass(frozen=True)
class Server:
    address: str
    jvm: int


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("connect") / "spark.log"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tests.engine.connect_server", str(port), str(log)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}  # For its Python workers, which run what tests are made of.
    with subprocess.Popen(
        command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        jvm = process.stdout.readline().strip()
        assert jvm.isdigit(), log.read_text()
        yield Server(f"sc://127.0.0.1:{port}", int(jvm))
        process.communicate(timeout=60)


@pytest.mark.parametrize(
    "which",
    [
        "one_task or moves_rows or fails_alone or keeps_its_hint or comes_back_once or all_rows_are_written",
        pytest.param("", id="all of it", marks=pytest.mark.long),
    ],
)
def test_the_engine_contract_holds_on_connect(server: Server, which: str) -> None:
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


def asking(server: Server) -> dict[str, str]:
    ours = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "SPARK_", "PYSPARK_"))}
    return ours | {"SPARK_REMOTE": server.address}


_DECLARED = """
name: notes
engine: spark
targets: {main: {type: lance, uri: .instep/index}}
entities:
  Document:
    source: {type: files, path: docs}
    embed: {type: hashing, dimensions: 8}
    transform: waiting:rows
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


def test_a_server_that_freezes_in_mid_wave_is_said_to_be_away(server: Server, tmp_path: Path) -> None:
    """What waits for it would do so for minutes."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/tides.md").write_text("The moon pulls the sea.\n")
    (tmp_path / "instep.yaml").write_text(_DECLARED)
    (tmp_path / "waiting.py").write_text(_WAITING.format(here=str(tmp_path)))
    run = [*INSTEP, "run", "--project", str(tmp_path)]
    with subprocess.Popen(run, env=asking(server), stderr=subprocess.PIPE, text=True) as process:
        until((tmp_path / "begun").exists)
        os.kill(server.jvm, signal.SIGSTOP)
        try:
            assert process.stderr is not None
            said = next(line for line in process.stderr if "waiting: " in line)
            assert said.endswith("waiting: Spark Connect does not answer any more: not within 10 s\n")
            process.send_signal(signal.SIGINT)
            rest = process.stderr.read()
        finally:
            (tmp_path / "go").touch()
            os.kill(server.jvm, signal.SIGCONT)
    assert process.returncode == 130, rest
    assert rest.splitlines()[-1] == "stopped; run again to resume"
    again = subprocess.run(run, env=asking(server), capture_output=True, text=True, timeout=300, check=False)
    assert again.returncode == 0, again.stderr
    assert list(instep.load(tmp_path).failures()) == []
