"""llama.cpp's own server, from the package `xllamacpp`, with a tiny model that is made here."""

from __future__ import annotations

import signal
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from tests.documents import gguf_model
from tests.servers.process import Server

_PROGRAM = """
import sys, threading, xllamacpp
about = xllamacpp.CommonParams()
about.model.path, about.port, about.api_keys = sys.argv[1], int(sys.argv[2]), [sys.argv[3]]
about.n_batch = about.n_ubatch = int(sys.argv[4])  # The most tokens of a text.
about.n_parallel, about.n_ctx = 4, 4 * int(sys.argv[4])
about.hostnames, about.embedding, about.warmup, about.ui = ["127.0.0.1"], True, False, False
about.cpuparams.n_threads = 1
server = xllamacpp.Server(about)
threading.Event().wait()
"""


class LlamaServer(Server):
    kind = "llama"
    farewell: ClassVar[signal.Signals] = signal.SIGKILL

    def _install(self) -> None:
        gguf_model.write(self.folder / "model.gguf")

    def _command(self) -> Sequence[str | Path]:
        about = (self.folder / "model.gguf", str(self.port), self.password, str(gguf_model.CONTEXT))
        return [sys.executable, "-c", _PROGRAM, *about]

    def _greet(self) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=10) as answer:
            answer.read()

    def execute(self, statement: str, *, database: str | None = None) -> list[tuple[object, ...]]:
        raise NotImplementedError("it has no statements")

    def url(self, database: str = "v1", *, user: str | None = None, password: str | None = None) -> str:
        return f"http://127.0.0.1:{self.port}/{database}"
