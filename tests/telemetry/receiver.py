"""A server of OpenLineage, on a free port, that keeps what it gets and checks it against the specification."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

#: As in the repository of OpenLineage, at version 2-0-2 of its specification.
_SPEC = Path(__file__).parent / "openlineage"


@cache
def _registry() -> Registry[Any]:
    schemas = (json.loads(path.read_text()) for path in _SPEC.glob("*.json"))
    return Registry().with_resources((schema["$id"], Resource.from_contents(schema)) for schema in schemas)


def check(event: dict[str, Any]) -> None:
    """Fails where an event, or one of its facets, is not as its own `schemaURL` says."""
    _validate(event, event["schemaURL"])
    datasets = [*event["inputs"], *event["outputs"]]
    parts = [event["run"]["facets"], event["job"]["facets"]]
    parts += [each.get(name, {}) for each in datasets for name in ("facets", "inputFacets", "outputFacets")]
    for facet in (facet for facets in parts for facet in facets.values()):
        _validate(facet, facet["_schemaURL"])


def _validate(value: Any, schema: str) -> None:
    checker = Draft202012Validator.FORMAT_CHECKER
    Draft202012Validator({"$ref": schema}, registry=_registry(), format_checker=checker).validate(value)


@dataclass
class LineageServer:
    """`answer` is the status that it answers with; it keeps what it takes."""

    url: str = ""
    answer: int = 201
    events: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)
    asked: int = 0


@contextmanager
def receiving() -> Iterator[LineageServer]:
    server = LineageServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server.asked += 1
            server.keys.add(self.headers["Authorization"])
            if server.answer < 300:
                server.events.append(json.loads(body))
            self.send_response(server.answer)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server.url = f"http://127.0.0.1:{http.server_port}/api/v1/lineage"
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
