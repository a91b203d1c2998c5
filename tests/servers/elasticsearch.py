"""Elasticsearch in a JVM of its own, from Maven Central: the node without its modules, which are in no repository.

8.19 is the last one that runs on Java 17. Of the modules it has what is in the program beside this one: no scripts.
"""

from __future__ import annotations

import atexit
import functools
import signal
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.servers.jars import jars
from tests.servers.process import Server

_NODE = ("org.elasticsearch:elasticsearch:8.19.5",)
_TRANSPORT = ("org.elasticsearch.plugin:transport-netty4:8.19.5",)


class ElasticsearchServer(Server):
    kind = "elasticsearch"
    farewell = signal.SIGKILL

    def __init__(self, node: Path, transport: Path) -> None:
        super().__init__()
        self._node = node
        self._transport = transport

    def _install(self) -> None:
        """It makes its folders itself."""

    def _command(self) -> Sequence[str | Path]:
        small = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        program = Path(__file__).with_name("ElasticsearchServer.java")
        folder = self.folder / "node"
        return ["java", *small, "-cp", f"{self._node}/*", program, folder, str(self.port), self._transport]

    def _greet(self) -> None:
        with urllib.request.urlopen(f"{self.url()}_cluster/health?wait_for_status=yellow", timeout=10) as answer:
            answer.read()

    def execute(self, statement: str, *, database: str | None = None) -> list[tuple[object, ...]]:
        raise NotImplementedError("it has no statements")

    def url(self, database: str = "", *, user: str | None = None, password: str | None = None) -> str:
        return f"http://127.0.0.1:{self.port}/{database}"


@functools.cache
def running_elasticsearch() -> ElasticsearchServer:
    """The one of this process; skips the test where its jars cannot be had."""
    server = ElasticsearchServer(jars(_NODE).needed(), jars(_TRANSPORT).needed())
    atexit.register(server.stop)
    server.start()
    return server
