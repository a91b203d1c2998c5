"""OpenAI's files, batches and embeddings, as its reference has them, on a local port; billed by tokens."""

from __future__ import annotations

import base64
import json
import struct
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from email import message_from_bytes
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .paid_endpoint import MODEL, PaidEndpoint, PaidHandler, tokens

#: Looks at a batch until it has ended.
LOOKS = 3


@dataclass
class BatchEndpoint(PaidEndpoint):
    """`hang` names a request (`POST /batches`, …) in which the server goes silent, before or after its effect. `ends`:
    how batches end. Texts with `refused` in them get a 400. `garbles`: the first answer to a request is this instead,
    after its effect, or what it makes of the answer.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)
    looks: dict[str, int] = field(default_factory=dict)
    batched: int = 0
    hang: tuple[str, str] | None = None
    garbles: dict[str, bytes | Callable[[Any], Any]] = field(default_factory=dict)
    ends: str = "completed"
    page: int = 2
    #: More texts than these may not wait.
    most: int = 50_000

    def __post_init__(self) -> None:
        super().__init__(BatchHandler)

    __hash__ = PaidEndpoint.__hash__

    def hangs(self, what: str, when: str) -> bool:
        if self.hang != (what, when):
            return False
        self.hanging.set()
        self.answers.wait()
        return True

    def garbled(self, what: str, answer: Any) -> Any:
        made = self.garbles.pop(what, None)
        if callable(made):
            return made(json.loads(json.dumps(answer)) if not isinstance(answer, bytes) else answer)
        return answer if made is None else made

    def file(self, content: bytes, name: str, purpose: str) -> dict[str, Any]:
        identity = f"file-{uuid.uuid4().hex}"
        self.files[identity] = content
        self.names[identity] = name
        return {
            "id": identity,
            "object": "file",
            "bytes": len(content),
            "created_at": int(time.time()),
            "filename": name,
            "purpose": purpose,
        }

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        assert set(body) == {"input_file_id", "endpoint", "completion_window", "metadata"}
        assert (body["endpoint"], body["completion_window"]) == ("/v1/embeddings", "24h")
        assert all(len(name) <= 64 and len(value) <= 512 for name, value in body["metadata"].items())
        lines = [json.loads(line) for line in self.files[body["input_file_id"]].splitlines()]
        assert len({each["custom_id"] for each in lines}) == len(lines) <= 50_000
        identity = f"batch_{uuid.uuid4().hex}"
        made = {
            "id": identity,
            "object": "batch",
            **body,
            "errors": None,
            "status": "validating",
            "output_file_id": None,
            "error_file_id": None,
            "created_at": int(time.time()),
            "request_counts": {"total": len(lines), "completed": 0, "failed": 0},
        }
        self.batches[identity], self.looks[identity] = made, 0
        return made

    def look(self, identity: str) -> dict[str, Any] | None:
        made = self.batches.get(identity)
        if made is None:
            return None
        self.looks[identity] += 1
        if made["status"] in ("validating", "in_progress"):
            made["status"] = "in_progress"
            if self.looks[identity] >= LOOKS:
                self._end(made)
        return made

    def _end(self, made: dict[str, Any]) -> None:
        made["status"] = self.ends if made["request_counts"]["total"] <= self.most else "failed"
        if made["status"] == "failed":
            told = {"code": "model_not_found", "message": "The model is not for batches"}
            if self.ends != "failed":
                told = {"code": "token_limit_exceeded", "message": "Enqueued token limit reached"}
            made["errors"] = {"object": "list", "data": [told]}
            return
        lines = [json.loads(line) for line in self.files[made["input_file_id"]].splitlines()]
        late: list[dict[str, Any]] = []
        if self.ends == "expired":
            half = -(-len(lines) // 2)
            lines, late = lines[:half], lines[half:]
        done = [self._done(each) for each in reversed(lines)]
        good = [each for each in done if each["response"]["status_code"] == 200]
        bad = [each for each in done if each["response"]["status_code"] != 200]
        expired = {"code": "batch_expired", "message": "This request could not be executed before it expired."}
        unasked = [{"id": "x", "custom_id": each["custom_id"], "response": None, "error": expired} for each in late]
        for name, some in (("output_file_id", good), ("error_file_id", [*bad, *unasked])):
            if some:
                text = b"".join(json.dumps(each).encode() + b"\n" for each in some)
                made[name] = self.file(text, name, "batch_output")["id"]
        made["request_counts"] |= {"completed": len(good), "failed": len(bad)}

    def _done(self, line: dict[str, Any]) -> dict[str, Any]:
        assert (line["method"], line["url"], set(line)) == (
            "POST",
            "/v1/embeddings",
            {"custom_id", "method", "url", "body"},
        )
        body = line["body"]
        assert body["model"] == MODEL
        text = body["input"]
        if "refused" in text:
            return self._line(line, 400, {"error": {"message": "too rude", "type": "invalid_request_error"}})
        cost = tokens([text])
        self.batched += cost
        self.asked.append(text)
        vector = [float(len(text)), *[1.0 + text.count("e")] * 2]
        made: Any = vector
        if body.get("encoding_format") == "base64":
            made = base64.b64encode(struct.pack("<3f", *vector)).decode()
        data = [{"object": "embedding", "index": 0, "embedding": made}]
        told = {"usage": {"prompt_tokens": cost, "total_tokens": cost}} if self.tells else {}
        return self._line(line, 200, {"object": "list", "data": data, "model": MODEL, **told})

    def _line(self, line: dict[str, Any], status: int, body: dict[str, Any]) -> dict[str, Any]:
        response = {"status_code": status, "request_id": uuid.uuid4().hex, "body": body}
        return {
            "id": f"batch_req_{uuid.uuid4().hex}",
            "custom_id": line["custom_id"],
            "response": response,
            "error": None,
        }


class BatchHandler(PaidHandler):
    server: BatchEndpoint

    def post(self, body: bytes) -> None:
        path = urlsplit(self.path).path.removeprefix("/v1")
        if path == "/embeddings":
            texts = json.loads(body)["input"]
            if any("refused" in each for each in texts):
                self.send(400, {"error": {"message": "too rude"}})
            else:
                self.send(200, self.server.embed(texts))
        elif path == "/files":
            self._effect("POST /files", lambda: self._upload(body))
        elif path == "/batches":
            self._effect("POST /batches", lambda: self.server.create(json.loads(body)))
        else:
            self.send(404, {"error": {"message": f"no {path}"}})

    def _effect(self, what: str, make: Any) -> None:
        """An effect that may happen and never be told, or not happen at all."""
        if self.server.hangs(what, "before"):
            return
        made = make()
        if not self.server.hangs(what, "after"):
            self.send(200, self.server.garbled(what, made))

    def _upload(self, body: bytes) -> dict[str, Any]:
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        parts = {str(each.get_param("name", header="content-disposition")): each for each in _parts(head + body)}
        assert parts["purpose"].get_payload(decode=True) == b"batch"
        name = parts["file"].get_filename()
        assert name is not None
        assert name.endswith(".jsonl")
        return self.server.file(parts["file"].get_payload(decode=True), name, "batch")

    def do_GET(self) -> None:  # noqa: N802 - a name that http.server asks for
        url = urlsplit(self.path)
        path = url.path.removeprefix("/v1").strip("/").split("/")
        if path == ["batches"]:
            self._list({name: values[0] for name, values in parse_qs(url.query).items()})
        elif path[0] == "batches":
            if self.server.hangs("GET /batches", "before"):
                return
            found = self.server.look(path[1])
            made = self.server.garbled("GET /batch", found) if found else None
            self.send(200, made) if found else self.send(404, {"error": {"message": "no such batch"}})
        elif path == ["files"]:
            some = [{"id": each, "filename": self.server.names[each]} for each in self.server.files]
            self.send(200, self.server.garbled("GET /files", {"object": "list", "data": some, "has_more": False}))
        elif path[0] == "files" and path[2:] == ["content"] and path[1] in self.server.files:
            if not self.server.hangs("GET /content", "before"):
                self.send(200, self.server.garbled("GET /content", self.server.files[path[1]]))
        else:
            self.send(404, {"error": {"message": f"no {path}"}})

    def _list(self, asked: dict[str, str]) -> None:
        every = sorted(self.server.batches.values(), key=lambda each: -each["created_at"])
        ids = [each["id"] for each in every]
        start = ids.index(asked["after"]) + 1 if "after" in asked else 0
        some = every[start : start + min(int(asked["limit"]), self.server.page)]
        page = {"object": "list", "data": some, "has_more": start + len(some) < len(every)}
        self.send(200, self.server.garbled("GET /batches", page))

    def do_DELETE(self) -> None:  # noqa: N802 - a name that http.server asks for
        identity = self.path.rpartition("/")[2]
        gone = self.server.files.pop(identity, None) is not None
        self.send(200 if gone else 404, {"id": identity, "object": "file", "deleted": gone})


def _parts(message: bytes) -> list[Any]:
    return list(message_from_bytes(message).get_payload())
