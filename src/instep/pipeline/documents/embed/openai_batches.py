"""OpenAI's batch API: texts are embedded within a day, at half the price.

A batch carries a key of ours in its metadata, so it is found again if the process that made it did not live to see the
answer. Each text is a request of its own, named by its hash: what comes back says by itself which text it is of.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from instep.domain.texts import amount, cleaned, without
from instep.errors import InstepError, Transient, UserError
from instep.pipeline.documents.embed.embedder import EmbedRejected
from instep.pipeline.documents.embed.http import HttpEmbedder, client_of
from instep.pipeline.documents.embed.vector_formats import most_bytes, vector_of
from instep.servers.http import Answer, TooLarge, ask

if TYPE_CHECKING:
    import numpy as np

#: Limits of the API, and what a file has at most: bytes are counted without the names around them.
MOST_TEXTS: Final = 50_000
MOST_BYTES: Final = 100_000_000
#: The name of our key in a batch's metadata.
_KEY: Final = "instep"
_PAGE: Final = 100
#: Seconds without a byte of an answer; until all of one is there; and of a file.
_SECONDS: Final = 60.0
_ANSWER: Final = 600.0
_FILE: Final = 3_600.0
#: Bytes of an answer, and of a line in a file beside its vector.
_LARGEST: Final = 20_000_000
_LINE: Final = "." * 1_000
_CHECK: Final = "Check `url`, `model` and `api_key` under `embed`; does this endpoint have OpenAI's batch API?"
#: The name of a text: its hash.
_NAME: Final = re.compile(r"[0-9a-f]{64}")
_ENDED: Final = frozenset({"completed", "failed", "expired", "cancelled"})
_STATUSES: Final = _ENDED | {"validating", "in_progress", "finalizing", "cancelling"}

T = TypeVar("T")


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
        """A copy that is expired, for a batch that the API does not know any more."""
        return self._replace(status="expired", output=None, errors=None)

    @property
    def ended(self) -> bool:
        return self.status in _ENDED


class Result(NamedTuple):
    """The answer to a request: the text's hash (none, if it says none), its vector, if it has one, and the tokens that
    were billed, if that is said.
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
            uploaded = self._call("POST", "/files", _identity, data={"purpose": "batch"}, files=named)
        body = {
            "input_file_id": uploaded,
            "endpoint": "/v1/embeddings",
            "completion_window": "24h",
            "metadata": {_KEY: key},
        }
        return self._call("POST", "/batches", _batch, json=body)

    def get(self, batch_id: str) -> Batch | None:
        """Read a batch; None if the API does not know it any more."""
        return self._call_known("GET", f"/batches/{batch_id}", _batch)

    def find(self, key: str, since: float) -> Batch | None:
        """The batch that carries the key, among those made since then (seconds); None if there is none."""
        for page in self._pages("/batches"):
            for each in page:
                if (each.get("metadata") or {}).get(_KEY) == key:
                    return self._read("GET", "/batches", _batch, each)
            if page and self._read("GET", "/batches", _made_at, page[-1]) < since:
                return None
        return None

    def results(self, batch: Batch) -> Iterator[Result]:
        """The answers of a batch: vectors of texts, and texts that were refused. Raises `FilesGone`, and `Transient` if
        they are fewer than it says.
        """
        found = 0
        for file in filter(None, (batch.output, batch.errors)):
            with tempfile.TemporaryFile() as kept:
                self._download(file, batch, kept)
                kept.seek(0)
                for line in kept:
                    if line.strip():
                        found += 1
                        yield self._read("GET", f"/files/{file}/content", self._result, line)
        if found < batch.done:
            what = f"{batch.id} has {amount(batch.done, 'answer')}, and its files have {found:,}"
            raise Transient(f"the batch API gives less than it says: {what}")

    def forget(self, batch: Batch) -> None:
        """Remove its files: they hold the texts."""
        for file in filter(None, (batch.input, batch.output, batch.errors)):
            self._remove(file)

    def drop_upload(self, key: str) -> None:
        """Remove the file of a batch that was never made: it holds the texts."""
        for page in self._pages("/files", purpose="batch"):
            for each in page:
                if each.get("filename") == _file_name(key):
                    self._remove(self._read("GET", "/files", _identity, each))
                    return

    def _remove(self, file: str) -> None:
        self._call_known("DELETE", f"/files/{file}", bool)

    def _pages(self, path: str, **params: str) -> Iterator[list[dict[str, Any]]]:
        """List everything that the API has, page by page."""
        after: dict[str, str] = {}
        more = True
        while more:
            page, more = self._call("GET", path, _page, params={"limit": str(_PAGE)} | params | after)
            yield page
            if more:
                before, after = after, {"after": self._read("GET", path, _identity, page[-1])}
                if before == after:
                    raise _no_use("GET", path, "the same page again")

    def _request(self, name: str, text: str) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.embedder.model, "input": self.embedder.prompt + text}
        body["encoding_format"] = "base64"  # A third of the size.
        if self.embedder.shorten:
            body["dimensions"] = self.embedder.dimensions
        return {"custom_id": name, "method": "POST", "url": "/v1/embeddings", "body": body}

    def _result(self, line: bytes) -> Result:
        said = json.loads(line)
        name, response = said.get("custom_id"), said.get("response")
        if response is None or not (isinstance(name, str) and _NAME.fullmatch(name)):
            return Result("", None, 0)  # Not asked any more when the batch expired, say: it says nothing of the text.
        answer = response.get("body")
        if response.get("status_code") != 200:
            return Result(name, None, 0)
        return Result(name, self._vector(answer), self.embedder.protocol.billed_tokens(answer))

    def _vector(self, answer: Any) -> np.ndarray[Any, np.dtype[np.float32]] | None:
        try:
            return vector_of(answer["data"][0]["embedding"], self.embedder.dimensions)
        except (KeyError, IndexError, TypeError, EmbedRejected):
            return None

    def _download(self, file: str, batch: Batch, into: IO[bytes]) -> None:
        most = _LARGEST + most_bytes([_LINE], self.embedder.dimensions) * (batch.total or MOST_TEXTS)
        path = f"/files/{file}/content"
        answer = self._asked("GET", path, seconds=_FILE, most=most, into=into)
        if answer.status == 404:
            raise FilesGone(f"the file {file} is gone")
        self._demand(answer)

    def _call(self, method: str, path: str, read: Callable[[Any], T], **options: Any) -> T:
        """The answer to a request, as `read` finds it."""
        return self._found(method, path, read, self._asked(method, path, **options))

    def _call_known(self, method: str, path: str, read: Callable[[Any], T]) -> T | None:
        """Call the API; None if the thing that the call is about is not there."""
        answer = self._asked(method, path)
        return None if answer.status == 404 else self._found(method, path, read, answer)

    def _found(self, method: str, path: str, read: Callable[[Any], T], answer: Answer) -> T:
        self._demand(answer)
        return self._read(method, path, lambda answer: read(answer.json()), answer)

    def _read(self, method: str, path: str, read: Callable[[Any], T], said: Any) -> T:
        """Raises `Transient` if something else is there than the API says: what it did is looked up later."""
        try:
            return read(said)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError, RecursionError) as error:
            missing = f"no {error}" if isinstance(error, KeyError) else "something else than its reference says"
            raise _no_use(method, path, missing) from None

    def _asked(
        self, method: str, path: str, *, seconds: float = _ANSWER, most: int = _LARGEST, **options: Any
    ) -> Answer:
        import httpx

        with client_of(self.embedder, _SECONDS) as client:
            try:
                return ask(client, method, path, seconds=seconds, most=most, **options)
            except (httpx.RequestError, TimeoutError) as error:
                raise _away(type(error).__name__) from None
            except TooLarge as error:
                raise _away(str(error)) from None

    def _demand(self, answer: Answer) -> None:
        if answer.is_success:
            return
        if answer.is_passing:
            raise _away(f"it answered {answer.status}")
        said = cleaned(without(answer.text, self.embedder.api_key))
        raise UserError(f"the batch API refuses to work ({answer.status}): {said}", hint=_CHECK)


def _file_name(key: str) -> str:
    return f"instep-{key}.jsonl"


def _away(reason: str) -> Transient:
    return Transient(f"the batch API is out of reach: {reason}")


def _no_use(method: str, path: str, found: str) -> Transient:
    return Transient(f"the batch API's answer to {method} {path} has {found}")


def _identity(said: Any) -> str:
    return _text(said, "id")


def _text(said: Any, name: str) -> str:
    if not isinstance(said[name], str) or not said[name]:
        raise KeyError(name)
    found: str = said[name]
    return found


def _made_at(said: Any) -> float:
    return float(said["created_at"])


def _page(said: Any) -> tuple[list[dict[str, Any]], bool]:
    """The things of a page, and whether there are more."""
    found = said["data"]
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise KeyError("data")
    return found, bool(found and said.get("has_more"))


def _batch(said: Any) -> Batch:
    counts = said.get("request_counts") or {}
    problems = (said.get("errors") or {}).get("data") or []
    status = _text(said, "status")
    if status not in _STATUSES:
        raise KeyError("status")
    return Batch(
        id=_identity(said),
        status=status,
        input=_text(said, "input_file_id"),
        output=_text(said, "output_file_id") if said.get("output_file_id") else None,
        errors=_text(said, "error_file_id") if said.get("error_file_id") else None,
        done=int(counts.get("completed") or 0) + int(counts.get("failed") or 0),
        total=int(counts.get("total") or 0),
        too_large=any(each.get("code") == "token_limit_exceeded" for each in problems),
        problem=cleaned("; ".join(str(each.get("message", each.get("code"))) for each in problems)),
    )
