"""`milvus-lite server` from the package `milvus-lite`: a small Milvus in a process of its own."""

from __future__ import annotations

import atexit
import functools
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc

from tests.servers.process import Server


class MilvusServer(Server):
    """One worker, so that calls take turns: writers of one collection at once are more than it can bear."""

    kind = "milvus"
    farewell = signal.SIGKILL

    def _install(self) -> None:
        """It makes its folder itself."""

    def _command(self) -> Sequence[str | Path]:
        program = Path(sys.executable).parent / "milvus-lite"
        where = ("--data-dir", self.folder / "data", "--host", "127.0.0.1", "--port", str(self.port))
        return [program, "server", *where, "--max-workers", "1"]

    def _greet(self) -> None:
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            grpc.channel_ready_future(channel).result(timeout=2)

    def execute(self, statement: str, *, database: str | None = None) -> list[tuple[object, ...]]:
        raise NotImplementedError("it has no statements")

    def url(self, database: str = "default", *, user: str | None = None, password: str | None = None) -> str:
        return f"http://127.0.0.1:{self.port}/{database}"


@functools.cache
def running_milvus() -> MilvusServer:
    """The one of this process."""
    server = MilvusServer()
    atexit.register(server.stop)
    server.start()
    return server
