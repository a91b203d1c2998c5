"""Servers of tests end with the tests, however these end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

from tests.waiting import until

#: A server whose own process starts two others, as that of Spark does, and is gone before them.
_SERVER = """
import os, signal, sys
from pathlib import Path
from tests.servers.process import Server

class Two(Server):
    kind = "two"
    farewell = signal.SIGKILL

    def _install(self):
        pass

    def _command(self):
        return ["bash", "-c", f"sleep 600 & sleep 600 & jobs -p > {self.folder}/pids; touch {self.folder}/up; wait"]

    def _greet(self):
        (self.folder / "up").stat()

    execute = url = None

server = Two()
server.start()
print(server.folder, *(server.folder / "pids").read_text().split(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_server_has_started_ends_when_the_tests_are_killed() -> None:
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", _SERVER], cwd=root, capture_output=True, text=True, check=False)
    folder, *pids = done.stdout.split()
    assert len(pids) == 2, done.stderr
    until(lambda: not any(psutil.pid_exists(int(each)) for each in pids))
    until(lambda: not Path(folder).exists())
