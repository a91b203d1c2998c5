"""A database server as a process of the tests': its folder, its port, and the ways in which it can fail.

Servers keep what was committed through `kill` and `restart` (a real outage), but not through a power
cut: nothing is forced to the disk.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

import psutil

#: How long a server may take to start on a busy machine. Nothing waits this long unless it is broken.
START_SECONDS = 120

#: Ends the server and removes its folder once the tests' process has ended, in whatever way: the pipe
#: closes then. (PR_SET_PDEATHSIG would go off when the thread ends that started the server.)
_WATCH = """
import os, shutil, signal, sys, time
pids, folder, farewell = [], sys.argv[1], int(sys.argv[2])
def send(pid, number):
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True
for line in sys.stdin:
    pids = [int(each) for each in line.split()]
for pid in pids:
    send(pid, signal.SIGCONT)
for number in [farewell] + [0] * 200 + [signal.SIGKILL] + [0] * 200:
    if not pids or not send(pids[0], number):
        break
    time.sleep(0.05)
try:
    os.killpg(pids[0], signal.SIGKILL)  # What it has started, and left behind.
except (IndexError, OSError):
    pass
shutil.rmtree(folder, ignore_errors=True)
"""


class Server(ABC):
    """Made stopped; `start` it once, `stop` it at the end. It listens on 127.0.0.1 only."""

    kind: ClassVar[str]
    #: What makes it end at once without leaving anything behind.
    farewell: ClassVar[signal.Signals]

    user = "instep"
    password = "hunter2-s3cret"  # as sharp as it looks: tests search messages for it

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"instep-{self.kind}-"))
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WATCH, str(self.folder), str(int(self.farewell))],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    # What each kind of server knows.

    @abstractmethod
    def _install(self) -> None:
        """Make the data folder."""

    @abstractmethod
    def _command(self) -> Sequence[str | Path]:
        """The server in the foreground, on `self.port`."""

    @abstractmethod
    def _greet(self) -> None:
        """Connect once; any exception means: not yet."""

    @abstractmethod
    def execute(self, statement: str, *, database: str | None = None) -> list[tuple[object, ...]]:
        """One statement as the owner of everything, outside of a transaction."""

    @abstractmethod
    def url(self, database: str = "ledger", *, user: str | None = None, password: str | None = None) -> str:
        """The URL of a ledger on this server."""

    @property
    def system_user(self) -> int | None:
        """The user it must run as, None for our own."""
        return None

    # Life and death.

    def start(self) -> None:
        self._install()
        for _ in range(5):
            self.port = free_port()
            if self._launch():
                return  # else another process was quicker to take the port
        raise RuntimeError(f"{self.kind} does not start:\n{self.log()}")

    def stop(self) -> None:
        if self._process is not None:
            self.kill()
        self._watcher.communicate()

    def kill(self) -> None:
        """kill -9 for it and all its processes: connections break in the middle of anything."""
        assert self._process is not None, "it is not running"
        family = self._family()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        # As long as one of them has its shared memory, PostgreSQL does not start again.
        deadline = time.monotonic() + START_SECONDS
        while not all(map(_has_ended, family)):
            assert time.monotonic() < deadline, f"{self.kind} does not end"
            time.sleep(0.005)
        self._process = None
        self._watch([])

    def restart(self) -> None:
        """Up again on the same port, after a `kill` or instead of one."""
        if self._process is not None:
            self.kill()
        if not self._launch():
            raise RuntimeError(f"{self.kind} does not start again:\n{self.log()}")

    def revive(self) -> None:
        """Whatever a test did to it: up and running afterwards."""
        if self._process is None or self._process.poll() is not None:
            self.restart()
        else:
            self.resume()

    def pause(self) -> None:
        """It hangs: connections stay open, nothing is answered."""
        family = self._family()
        self._watch(each.pid for each in family)
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()

    def resume(self) -> None:
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

    @property
    def pid(self) -> int:
        assert self._process is not None, "it is not running"
        return self._process.pid

    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text(errors="replace")[-5_000:] if path.exists() else ""

    def run(self, *command: str | Path) -> None:
        """A tool of the server's, run to its end."""
        with (self.folder / "log").open("ab") as log:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False, user=self.system_user
            )
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed:\n{self.log()}")

    def _family(self) -> list[psutil.Process]:
        assert self._process is not None, "it is not running"
        try:
            parent = psutil.Process(self._process.pid)
            return [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []  # It ended by itself.

    def _launch(self) -> bool:
        """Start and wait until it answers; False if it ended instead."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self.system_user,
                start_new_session=True,
            )
        self._watch([self._process.pid])
        deadline = time.monotonic() + START_SECONDS
        while self._process.poll() is None:
            try:
                self._greet()
            except Exception as error:
                if time.monotonic() > deadline:
                    self.kill()
                    raise RuntimeError(f"{self.kind} does not answer:\n{self.log()}") from error
                time.sleep(0.02)
            else:
                return True
        self._process = None
        self._watch([])
        return False

    def _watch(self, pids: Iterable[int]) -> None:
        """What is to be ended with us, the server itself first."""
        assert self._watcher.stdin is not None
        self._watcher.stdin.write(f"{' '.join(map(str, pids))}\n".encode())
        self._watcher.stdin.flush()


def _has_ended(process: psutil.Process) -> bool:
    """Also if the exit code is not read: a process without a parent may wait for that for ever."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_root() -> bool:
    return os.geteuid() == 0
