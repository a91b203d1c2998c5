"""`instep serve` in a process of its own, which can be ended and begun again at the same address."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

TOKEN: Final = "a-token-for-tests-only"
#: Nothing waits this long unless it is broken.
_TIMEOUT_SECONDS: Final = 120


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Site:
    """A project that is served."""

    folder: Path
    port: int = field(default_factory=_free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def served(self) -> Iterator[Site]:
        self.begin()
        try:
            yield self
        finally:
            self.end()

    def begin(self) -> None:
        """Returns when it answers."""
        command = [sys.executable, "-m", "instep", "serve", "--port", str(self.port), "--project", str(self.folder)]
        with (self.folder / "serve.log").open("ab") as log:
            environment = {**os.environ, "INSTEP_TOKEN": TOKEN}
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        until = time.monotonic() + _TIMEOUT_SECONDS
        while not self._answers():
            log_text = (self.folder / "serve.log").read_text()
            assert self._process.poll() is None, log_text
            assert time.monotonic() < until, log_text
            time.sleep(0.05)

    def end(self) -> None:
        """Stop at once, without a message to clients."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(_TIMEOUT_SECONDS)

    def _answers(self) -> bool:
        with suppress(urllib.error.URLError, ConnectionError), urllib.request.urlopen(f"{self.address}/api/project"):
            return True
        return False
