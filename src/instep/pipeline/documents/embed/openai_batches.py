"""OpenAI's batch API: texts are embedded within a day, at half the price.

A batch carries a key of ours in its metadata, so it is found again if the process that made it did not live to see the
answer. Each text is a request of its own, named by its hash: what comes back says by itself which text it is of.
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from instep.domain.texts import cleaned
from instep.errors import InstepError, Transient, UserError
from instep.pipeline.documents.embed.http import HttpEmbedder

if TYPE_CHECKING:
    import httpx
    import numpy as np

#: Limits of the API, and what a file has at most: bytes are counted without the names around them.
MOST_TEXTS: Final = 50_000
MOST_BYTES: Final = 100_000_000
#: The name of our key in a batch's metadata.
_KEY: Final = "instep"
_PAGE: Final = 100
_SECONDS: Final = 60.0
_CHECK: Final = "Check `url`, `model` and `api_key` under `embed`; does this endpoint have OpenAI's batch API?"


class Batch(NamedTuple):
    """A batch as the API says it is. `output` and `errors` are files; `problem` is why it failed."""

    id: str
    status: str
    input: str
    output: str | None
    errors: str | None
    done: int
    total: int
    problem: str
    #: It was more than the organisation may have waiting there.
    too_large: bool

    @property
    def gone(self) -> Batch:
        """The same, if the API does not know it any more."""
        return self._replace(status="expired", output=None, errors=None)

    @property
    def ended(self) -> bool:
        return self.status in ("completed", "failed", "expired", "cancelled")


class Result(NamedTuple):
    """The answer to a request: the text's hash, its vector, if it has one, and the tokens that were billed, if that is
    said.
    """

    hash: str
    vector: np.ndarray[Any, np.dtype[np.float32]] | None
    tokens: int | None


class FilesGone(InstepError):
    """A file with the answers of a batch is not there any more: it was removed, or a month has passed."""


@dataclass(frozen=True)
class BatchApi:
    """The files and batches of an embedder's endpoint. Every method raises `Transient` in an outage."""

    embedder: HttpEmbedder

    def submit(self, key: str, texts: Iterable[tuple[str, str]]) -> Batch:
        """Upload texts by their hashes, and make a batch of them that carries the key."""
        with tempfile.TemporaryFile() as file:
            for name, text in texts:
                file.write(json.dumps(self._request(name, text), ensure_ascii=False).encode() + b"\n")
            file.seek(0)
            named = {"file": (_file_name(key), file, "application/jsonl")}
            uploaded = self._call("POST", "/files", data={"purpose": "batch"}, files=named)
        body = {
            "input_file_id": uploaded["id"],
            "endpoint": "/v1/embeddings",
            "completion_window": "24h",
            "metadata": {_KEY: key},
        }
        return _batch(self._call("POST", "/batches", json=body))

    def get(self, batch_id: str) -> Batch | None:
        """None if the API does not know it any more."""
        found = self._call("GET", f"/batches/{batch_id}", missing=True)
        return None if found is None else _batch(found)

    def find(self, key: str, since: float) -> Batch | None:
        """The batch that carries the key, among those made since then (seconds); None if there is none."""
        after: dict[str, str] = {}
        while True:
            page = self._call("GET", "/batches", params={"limit": str(_PAGE)} | after)
            for each in page["data"]:
                if (each.get("metadata") or {}).get(_KEY) == key:
                    return _batch(each)
            if not page.get("has_more") or not page["data"] or page["data"][-1]["created_at"] < since:
                return None
            after = {"after": page["data"][-1]["id"]}

    def results(self, batch: Batch) -> Iterator[Result]:
        """The answers of a batch: vectors of texts, and texts that were refused. Raises `FilesGone`."""
        for file in filter(None, (batch.output, batch.errors)):
            with tempfile.TemporaryFile() as kept:
                self._download(file, kept)
                kept.seek(0)
                yield from (self._result(json.loads(line)) for line in kept if line.strip())

    def forget(self, batch: Batch) -> None:
        """Remove its files: they hold the texts."""
        for file in filter(None, (batch.input, batch.output, batch.errors)):
            self._call("DELETE", f"/files/{file}", missing=True)

    def drop_upload(self, key: str) -> None:
        """Remove the file of a batch that was never made: it holds the texts."""
        after: dict[str, str] = {}
        while True:
            page = self._call("GET", "/files", params={"purpose": "batch", "limit": str(_PAGE)} | after)
            for each in page["data"]:
                if each["filename"] == _file_name(key):
                    self._call("DELETE", f"/files/{each['id']}", missing=True)
                    return
            if not page.get("has_more") or not page["data"]:
                return
            after = {"after": page["data"][-1]["id"]}

    def _request(self, name: str, text: str) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.embedder.model, "input": self.embedder.prompt + text}
        body["encoding_format"] = "base64"  # A third of the size.
        if self.embedder.shorten:
            body["dimensions"] = self.embedder.dimensions
        return {"custom_id": name, "method": "POST", "url": "/v1/embeddings", "body": body}

    def _result(self, line: Any) -> Result:
        response = line.get("response") or {}
        answer = response.get("body") or {}
        if response.get("status_code") != 200:
            return Result(str(line["custom_id"]), None, 0)
        return Result(str(line["custom_id"]), self._vector(answer), self.embedder.protocol.billed_tokens(answer))

    def _vector(self, answer: Any) -> np.ndarray[Any, np.dtype[np.float32]] | None:
        import numpy as np

        from instep.pipeline.documents.embed.embedder import wrong_length

        try:
            found = answer["data"][0]["embedding"]
            plain = np.frombuffer(base64.b64decode(found), "<f4") if isinstance(found, str) else np.array(found, "f4")
        except (KeyError, IndexError, TypeError, ValueError):
            return None
        if plain.shape != (self.embedder.dimensions,):
            raise wrong_length(plain.size, self.embedder.dimensions)
        return plain.astype(np.float32)

    def _download(self, file: str, into: Any) -> None:
        import httpx

        with self._client() as client:
            try:
                with client.stream("GET", f"/files/{file}/content") as response:
                    if response.status_code == 404:
                        raise FilesGone(f"the file {file} is gone")
                    if not response.is_success:
                        response.read()
                    self._demand(response)
                    for some in response.iter_bytes():
                        into.write(some)
            except httpx.RequestError as error:
                raise _away(type(error).__name__) from None

    def _call(self, method: str, path: str, *, missing: bool = False, **options: Any) -> Any:
        import httpx

        with self._client() as client:
            try:
                response = client.request(method, path, **options)
            except httpx.RequestError as error:
                raise _away(type(error).__name__) from None
        if missing and response.status_code == 404:
            return None
        self._demand(response)
        try:
            return response.json()
        except ValueError:
            raise _away("its answer is not JSON") from None

    def _client(self) -> httpx.Client:
        import httpx

        key = self.embedder.api_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.embedder.url, headers=headers, timeout=_SECONDS)

    def _demand(self, response: httpx.Response) -> None:
        status = response.status_code
        if response.is_success:
            return
        if status in (408, 409, 425, 429) or status >= 500:
            raise _away(f"it answered {status}")
        text = response.text
        said = cleaned(text.replace(self.embedder.api_key, "***") if self.embedder.api_key else text)
        raise UserError(f"the batch API refuses to work ({status}): {said}", hint=_CHECK)


def _file_name(key: str) -> str:
    return f"instep-{key}.jsonl"


def _away(reason: str) -> Transient:
    return Transient(f"the batch API is out of reach: {reason}")


def _batch(said: Any) -> Batch:
    counts = said.get("request_counts") or {}
    problems = (said.get("errors") or {}).get("data") or []
    return Batch(
        id=said["id"],
        status=said["status"],
        input=said["input_file_id"],
        output=said.get("output_file_id"),
        errors=said.get("error_file_id"),
        done=counts.get("completed", 0) + counts.get("failed", 0),
        total=counts.get("total", 0),
        too_large=any(each.get("code") == "token_limit_exceeded" for each in problems),
        problem=cleaned("; ".join(str(each.get("message", each.get("code"))) for each in problems)),
    )
