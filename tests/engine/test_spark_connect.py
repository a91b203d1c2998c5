"""Runs the Connect contract in a process of its own against a server of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tests.engine.connect_server", str(port), str(tmp_path / "spark.log")]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", (tmp_path / "spark.log").read_text()
        yield f"sc://127.0.0.1:{port}"
        process.communicate(timeout=60)


@pytest.mark.parametrize(
    "which",
    [
        "one_task or moves_rows or fails_alone or keeps_its_hint or comes_back_once or all_rows_are_written",
        pytest.param("", id="all of it", marks=pytest.mark.long),
    ],
)
def test_the_engine_contract_holds_on_connect(server: str, which: str) -> None:
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
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")} | {"SPARK_REMOTE": server}
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
