"""A server that speaks Qdrant's REST interface; behind it is the local mode of qdrant-client.

So what a client says goes over a wire, is parsed by Qdrant's own models and acted upon by its own rules. What a server
may do besides, it does when told: refuse a key, be overloaded, break off, take only small requests, be at work.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest import mock

from qdrant_client import QdrantClient, models
from qdrant_client.local import bm25, payload_filters

VERSION = "1.20.0"


@dataclass
class QdrantServer:
    """`answers` are given instead of acting, first to last: (status, headers), or None to hang up. `after` is called
    after each request that changed something, before its answer. Answers to requests of the method `lost` are not sent.
    """

    api_key: str = ""
    version: str = VERSION
    read_only: bool = False
    max_bytes: int = 32 * 1024 * 1024
    answers: list[tuple[int, dict[str, str]] | None] = field(default_factory=list)
    after: Callable[[], None] | None = None
    lost: str = ""
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    busy: int = 0

    def __post_init__(self) -> None:
        self.local = QdrantClient(":memory:")
        self.turn = threading.RLock()
        self.thresholds: dict[str, int | None] = {}
        self.indexed: dict[str, set[str]] = {}
        self._split = [mock.patch.object(each, "unindexed_text_tokens", str.split) for each in (bm25, payload_filters)]

    def __enter__(self) -> QdrantServer:
        for each in self._split:
            each.start()
        handler = type("Handler", (_Handler,), {"owner": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        for each in self._split:
            each.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def act(self, method: str, path: str, body: Any) -> Any:
        match method, path.strip("/").split("/"):
            case "GET", [""]:
                return None
            case "GET", ["collections"]:
                return self.local.get_collections()
            case "GET", ["aliases"]:
                return self.local.get_aliases()
            case "POST", ["collections", "aliases"]:
                return self.local.update_collection_aliases(models.ChangeAliasesOperation(**body).actions)
            case method, ["collections", name, *rest]:
                return self._on_collection(method, name, "/".join(rest), body)
        raise LookupError(path)

    def _on_collection(self, method: str, name: str, what: str, body: Any) -> Any:
        local = self.local
        match method, what:
            case "GET", "exists":
                return {"exists": local.collection_exists(name)}
            case "GET", "":
                return self._info(name)
            case "PUT", "":
                self._tune(name, models.CreateCollection(**body).optimizers_config)
                return local.create_collection(name, vectors_config=models.CreateCollection(**body).vectors or {})
            case "PATCH", "":
                return self._tune(name, models.UpdateCollection(**body).optimizers_config)
            case "DELETE", "":
                return local.delete_collection(name)
            case "PUT", "index":
                return self._index(name, models.CreateFieldIndex(**body))
            case "PUT", "points":
                batch = models.PointsBatch(**body)
                return local.upsert(name, batch.batch, update_filter=batch.update_filter)
            case "POST", "points/delete":
                return local.delete(name, models.FilterSelector(**body))
            case "POST", "points/batch":
                return local.batch_update_points(name, models.UpdateOperations(**body).operations)
            case "POST", "points":
                wanted = models.PointRequest(**body)
                return local.retrieve(
                    name,
                    wanted.ids,
                    with_payload=wanted.with_payload or False,
                    with_vectors=wanted.with_vector or False,
                )
            case "POST", "points/scroll":
                asked = models.ScrollRequest(**body)
                found, following = local.scroll(
                    name,
                    scroll_filter=asked.filter,
                    limit=asked.limit or 10,
                    order_by=asked.order_by,
                    offset=asked.offset,
                    with_payload=asked.with_payload if asked.with_payload is not None else True,
                )
                return {"points": found, "next_page_offset": following}
            case "POST", "points/count":
                return local.count(name, count_filter=models.CountRequest(**body).filter)
            case "POST", "points/query":
                query = models.QueryRequest(**body)
                if isinstance(query.query, models.TextQuery) and self.version != VERSION:
                    raise ValueError("unknown variant `text`")
                return local.query_points(
                    name,
                    query=query.query,
                    using=query.using,
                    query_filter=query.filter,
                    limit=query.limit or 10,
                    with_payload=query.with_payload or False,
                )
            case "POST", "facet":
                facet = models.FacetRequest(**body)
                return local.facet(name, facet.key, facet.filter, facet.limit or 10, exact=bool(facet.exact))
        raise LookupError(what)

    def _index(self, name: str, wanted: models.CreateFieldIndex) -> Any:
        schema = wanted.field_schema
        self.indexed.setdefault(name, set()).add(wanted.field_name)
        if isinstance(schema, models.TextIndexParams):
            # Words are parted at white space, as our index is told, whatever the local mode would do.
            schema = models.TextIndexParams(type=schema.type, scoring=schema.scoring)
            return self.local.create_payload_index(name, wanted.field_name, field_schema=schema)
        return {"operation_id": 0, "status": "completed"}

    def _tune(self, name: str, optimizers: models.OptimizersConfigDiff | None) -> bool:
        self.thresholds[name] = optimizers.indexing_threshold if optimizers else None
        return True

    def _info(self, name: str) -> Any:
        info = self.local.get_collection(name).model_dump(mode="json")
        info["config"]["optimizer_config"]["indexing_threshold"] = self.thresholds.get(name)
        info["payload_schema"] = {each: {"data_type": "keyword", "points": 0} for each in self.indexed.get(name, ())}
        if self.thresholds.get(name) and self.busy:
            self.busy -= 1
            info["status"] = "yellow"
        return info


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body in one packet: two would wait for each other.
    wbufsize = -1
    owner: QdrantServer

    def log_message(self, format: str, *args: Any) -> None:
        """Not a word."""

    def _serve(self) -> None:
        owner, path = self.owner, self.path.split("?")[0]
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if owner.api_key and self.headers.get("api-key") != owner.api_key:
            return self._answer(401, error="Must provide an API key or an Authorization bearer token")
        if owner.read_only and self.command in ("PUT", "DELETE"):
            return self._answer(403, error="Forbidden: Global manage access is required")
        body = json.loads(raw) if raw else None
        with owner.turn:
            owner.requests.append((self.command, path, body))
            if owner.answers:
                instead = owner.answers.pop(0)
                if instead is None:
                    self.close_connection = True
                    return None
                return self._answer(instead[0], headers=instead[1], error="as told")
            if len(raw) > owner.max_bytes:
                return self._answer(413, error=f"JSON payload ({len(raw)} bytes) is larger than allowed")
            try:
                result = owner.act(self.command, path, body)
            except LookupError as error:
                return self._answer(404, error=str(error))
            except (ValueError, NotImplementedError) as error:
                return self._answer(404 if "not found" in str(error) else 400, error=str(error))
            if owner.after is not None and _changes(self.command, path):
                owner.after()
            if path == "/":
                return self._send(200, {"title": "qdrant", "version": owner.version})
            return self._send(200, {"result": _plain(result), "status": "ok", "time": 0.0})

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - names that http.server asks for

    def _answer(self, status: int, *, error: str, headers: dict[str, str] | None = None) -> None:
        self._send(status, {"status": {"error": error}, "time": 0.0}, headers or {})

    def _send(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        if self.command == self.owner.lost:
            self.close_connection = True
            return
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _changes(method: str, path: str) -> bool:
    return (method, path.rpartition("/")[2]) in {("PUT", "points"), ("POST", "delete"), ("POST", "batch")}


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value
