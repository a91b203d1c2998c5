"""A collector of traces: OTLP over HTTP, on a free port, that keeps what it gets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Got:
    """A span as it came: ids are hexadecimal, `process` is that of the process that sent it, `state` the tracestate."""

    name: str
    trace: str
    id: str
    parent: str
    process: int
    failed: bool
    why: str
    seconds: float
    facts: dict[str, Any]
    state: str


@dataclass
class Collector:
    url: str = ""
    spans: list[Got] = field(default_factory=list)

    def named(self, name: str) -> list[Got]:
        return [each for each in self.spans if each.name == name]

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            process = _values(resource.resource.attributes)
            assert process["service.name"] == "instep"
            for scope in resource.scope_spans:
                for span in scope.spans:
                    seconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
                    ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
                    facts, status = _values(span.attributes), span.status
                    self.spans.append(
                        Got(
                            span.name,
                            *ids,
                            process["process.pid"],
                            status.code == 2,
                            status.message,
                            seconds,
                            facts,
                            span.trace_state,
                        )
                    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        # Head and body in one packet: two would wait for each other.
        wbufsize = -1

        def do_POST(self) -> None:
            found.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
