"""Rows to the server in bulk requests, some of them at once, and not faster than it takes them.

An item is in when the answer says so by its id. In every other case the items of a request are sent again, which
changes nothing twice: an id and an epoch decide. During an outage the breaker waits, and no try is spent.
"""

from __future__ import annotations

import json
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from instep.domain.retries import Backoff, Breaker
from instep.errors import Fenced, Transient
from instep.targets.opensearch.indexes import Connection, TooLarge, Unavailable, path
from instep.targets.opensearch.layout import RENAMED
from instep.targets.request_limits import records

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


#: A server takes ids of so many bytes.
ID_BYTES = 512

#: Rows made into JSON at once.
_STEP = 200


@dataclass(frozen=True, slots=True)
class Item:
    """A row to write or to remove, and its lines of the request."""

    chunk_id: str
    document_id: str
    action: str
    lines: bytes


def upserts(rows: pa.RecordBatch, epoch: int) -> Iterator[Item]:
    """Items that write rows of `row_schema`. A vector without a direction is left out: cosine has no place for it."""
    for at in range(0, rows.num_rows, _STEP):
        part = rows.slice(at, _STEP)
        vectors = _vectors(part)
        for said, vector in zip(records(part), vectors, strict=True):
            found = {RENAMED.get(name, name): value for name, value in said.items() if value is not None}
            if vector is not None:
                found["vector"] = vector
            head = _head("index", said["chunk_id"], epoch)
            yield Item(said["chunk_id"], said["document_id"], "index", head + json.dumps(found).encode() + b"\n")


def deletes(chunk_ids: Sequence[str], epoch: int) -> Iterator[Item]:
    for each in chunk_ids:
        yield Item(each, "", "delete", _head("delete", each, epoch))


def _head(action: str, id: str, epoch: int) -> bytes:
    """The first line of an item, with the epoch as version: rows that a newer one has written or removed stay
    unchanged.
    """
    said = {action: {"_id": id, "version": epoch, "version_type": "external_gte"}}
    return json.dumps(said).encode() + b"\n"


def _vectors(rows: pa.RecordBatch) -> list[list[float] | None]:

    column: Any = rows.column("vector")
    flat: np.ndarray[Any, np.dtype[np.float32]] = column.flatten().to_numpy(zero_copy_only=False)
    vectors = flat.reshape(rows.num_rows, -1)
    directed: list[bool] = (vectors != 0).any(axis=1).tolist()
    return [vector if has else None for vector, has in zip(vectors.tolist(), directed, strict=True)]


#: Unless the project says otherwise: of one request, and of how many at once.
MAX_PAYLOAD_BYTES: Final = 10_000_000
MAX_REQUESTS: Final = 4

#: As opensearch-py's own helpers: what a task has at hand makes several requests, which the server takes side by side.
MAX_ROWS: Final = 500
_LEAST_ROWS: Final = 10
_LEAST_BYTES: Final = 64 * 1024

#: So many answers in a row without a complaint, and it is tried with more.
_CALM: Final = 8


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of bulk requests: the size of one, their number in flight, and the bounds of both."""

    rows: int
    bytes: int
    requests: int
    most: tuple[int, int, int]
    quiet: int = 0

    @classmethod
    def fullest(cls, payload: int, requests: int, rows: int = MAX_ROWS) -> Pace:
        return cls(rows, payload, requests, (rows, payload, requests))

    def slowed(self) -> Pace:
        """Half of everything."""
        return replace(
            self,
            rows=max(min(_LEAST_ROWS, self.rows), self.rows // 2),
            bytes=max(min(_LEAST_BYTES, self.bytes), self.bytes // 2),
            requests=max(1, self.requests // 2),
            quiet=0,
        )

    def calm(self) -> Pace:
        """After an answer without a complaint."""
        if self.quiet + 1 < _CALM:
            return replace(self, quiet=self.quiet + 1)
        rows, bytes_, requests = self.most
        return replace(
            self,
            rows=min(rows, self.rows * 2),
            bytes=min(bytes_, self.bytes * 2),
            requests=min(requests, self.requests + 1),
            quiet=0,
        )

    def within(self, bytes_: int) -> Pace:
        """After the server said that more than this is too large, which will not change: it is the most from now on."""
        rows, most, requests = self.most
        return replace(self, bytes=min(self.bytes, bytes_), most=(rows, min(most, bytes_), requests), quiet=0)


#: Seconds that a server may be away, or busy, without anything getting in.
_TIMEOUT_SECONDS: Final = 120.0

_FIRST_WAIT: Final = 0.2
_LONGEST_WAIT: Final = 10.0

_DONE: Final = (200, 201)
_NOT_FOUND: Final = 404
_NEWER: Final = 409
_TOO_MANY: Final = 429
_SERVER_ERROR: Final = 500

#: Of an answer only what tells what became of each item.
_ASKED: Final = {"filter_path": "items.*._id,items.*.status,items.*.error"}

Part = Sequence[Item]


class _Answer(NamedTuple):
    """The answer to one request: items to send again, with the reason; refused items, with the reason; and those that
    met something newer.
    """

    part: Part
    again: Sequence[Item] = ()
    trouble: str = ""
    large: str = ""
    refused: Sequence[tuple[Item, str]] = ()
    met: Sequence[tuple[Item, str]] = ()


class Sent(NamedTuple):
    """The items that are not in: those that the server refuses, and those that met another version than they name,
    both with the server's reasons.
    """

    refused: list[tuple[Item, str]]
    met: list[tuple[Item, str]]


@dataclass
class Bulk:
    """Requests of one task to one index. Not shared between threads."""

    connection: Connection
    index: str
    pace: Pace
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    _breaker: Breaker = field(default_factory=Breaker, init=False)
    _trouble_since: float | None = field(default=None, init=False)
    _tried: int = field(default=0, init=False)

    def send(self, items: Iterable[Item]) -> list[tuple[Item, str]]:
        """Returns when all of them are in, but for those that the server refuses, with its reasons. Raises `Fenced`
        when a newer epoch has been at one of them, `Transient` when the server has been away for too long.
        """
        sent = self.put(items)
        for _, reason in sent.met:
            raise Fenced(reason)
        return sent.refused

    def put(self, items: Iterable[Item]) -> Sent:
        """The same, of items that may meet another version than they name."""
        fresh, waiting = iter(items), deque[Part]()
        refused: list[tuple[Item, str]] = []
        met: list[tuple[Item, str]] = []
        with ThreadPoolExecutor(self.pace.most[2], thread_name_prefix="instep-bulk") as pool:
            running: set[Future[_Answer]] = set()
            held: list[Item] = []
            while True:
                while len(running) < self.pace.requests:
                    part = waiting.popleft() if waiting else self._next(fresh, held)
                    if not part:
                        break
                    running.add(pool.submit(self._post, part))
                if not running:
                    break
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for each in done:
                    answer = each.result()
                    refused += answer.refused
                    met += answer.met
                    waiting.extend(self._weighed(answer, refused))
        return Sent(refused, met)

    def _next(self, fresh: Iterator[Item], held: list[Item]) -> Part:
        """Take as many items as one request may hold now; one that is too large by itself goes alone. `held` is what
        was taken and did not fit.
        """
        part: list[Item] = []
        size = 0
        while len(part) < self.pace.rows:
            item = held.pop() if held else next(fresh, None)
            if item is None:
                break
            if part and size + len(item.lines) > self.pace.bytes:
                held.append(item)
                break
            part.append(item)
            size += len(item.lines)
        return part

    def _weighed(self, answer: _Answer, refused: list[tuple[Item, str]]) -> list[Part]:
        """The parts that have to be sent again; the pace follows the answer."""
        if answer.large:
            size = sum(len(each.lines) for each in answer.part)
            if len(answer.part) == 1:
                refused.append((answer.part[0], answer.large))
                return []
            half = len(answer.part) // 2
            self.pace = self.pace.within(size // 2)
            return [answer.part[:half], answer.part[half:]]
        if not answer.trouble:
            self.pace, self._breaker = self.pace.calm(), self._breaker.succeeded()
            self._trouble_since, self._tried = None, 0
            return []
        self.pace = self.pace.slowed()
        if len(answer.again) < len(answer.part):
            # It is there, and takes some.
            self._trouble_since, self._breaker = None, self._breaker.succeeded()
        self._wait(answer.trouble)
        return self._cut(answer.again)

    def _cut(self, items: Sequence[Item]) -> list[Part]:
        fresh, held, parts = iter(items), list[Item](), list[Part]()
        while part := self._next(fresh, held):
            parts.append(part)
        return parts

    def _wait(self, trouble: str) -> None:
        now = self.clock()
        since = self._trouble_since = now if self._trouble_since is None else self._trouble_since
        if now - since > _TIMEOUT_SECONDS:
            raise Transient(f"{self.connection.shown}: {trouble}")
        self._tried += 1
        self._breaker = self._breaker.failed(now)
        pause = Backoff(_FIRST_WAIT, _LONGEST_WAIT, random.random).pause(self._tried)
        self.sleep(max(pause, self._breaker.wait(now)))

    def _post(self, part: Part) -> _Answer:
        try:
            body = b"".join(each.lines for each in part)
            answer = self.connection.once("POST", path(self.index, "_bulk"), body, params=_ASKED)
        except TooLarge as error:
            return _Answer(part, large=str(error))
        except Unavailable as error:
            return _Answer(part, again=part, trouble=str(error))
        return _understood(part, answer)


def _understood(part: Part, answer: dict[str, Any]) -> _Answer:
    """Every item has to be confirmed: by its place and its id."""
    said = answer.get("items")
    if not isinstance(said, list) or len(said) != len(part):
        return _Answer(part, again=part, trouble="its answer does not say what became of all rows")
    again: list[Item] = []
    refused: list[tuple[Item, str]] = []
    met: list[tuple[Item, str]] = []
    trouble = ""
    for item, each in zip(part, said, strict=True):
        result = each.get(item.action) or {}
        status, error = result.get("status", 0), result.get("error") or {}
        reason = f"{error.get('type')}: {error.get('reason')}"
        if result.get("_id") != item.chunk_id or not status:
            again.append(item)
            trouble = trouble or "its answer does not say what became of all rows"
        elif status in _DONE or (status == _NOT_FOUND and item.action == "delete" and not error):
            continue
        elif status == _NEWER:
            met.append((item, reason))
        elif status == _TOO_MANY or status >= _SERVER_ERROR:
            again.append(item)
            trouble = trouble or f"it answered {status}: {reason}"
        else:
            refused.append((item, reason))
    return _Answer(part, again, trouble, "", refused, met)
