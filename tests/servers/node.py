"""A node of a search index in a JVM of its own: a Java program beside this one, with jars from Maven Central."""

from __future__ import annotations

import signal
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from tests.servers.process import Server


class Node(Server):
    """`folders` of jars are its class path; the program gets its folder, the port, and the `arguments`."""

    farewell = signal.SIGKILL
    #: The Java source.
    program: ClassVar[str]

    def __init__(self, folders: Sequence[Path], arguments: Sequence[Path] = ()) -> None:
        super().__init__()
        self._folders = folders
        self._arguments = arguments

    def _install(self) -> None:
        """It makes its folders itself."""

    def _command(self) -> Sequence[str | Path]:
        paths = ":".join(f"{each}/*" for each in self._folders)
        small = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        program = Path(__file__).with_name(self.program)
        return ["java", *small, "-cp", paths, program, self.folder / "node", str(self.port), *self._arguments]

    def _greet(self) -> None:
        with urllib.request.urlopen(f"{self.url()}_cluster/health?wait_for_status=yellow", timeout=10) as answer:
            answer.read()

    def execute(self, statement: str, *, database: str | None = None) -> list[tuple[object, ...]]:
        raise NotImplementedError("it has no statements")

    def url(self, database: str = "", *, user: str | None = None, password: str | None = None) -> str:
        return f"http://127.0.0.1:{self.port}/{database}"
