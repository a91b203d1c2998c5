"""The port of Qdrant collections, in this process or on a server; rows as points.

`server.ServerCollections` asks a server, `edge.EdgeCollections` works in this process.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from instep.domain.filters import Condition
from instep.domain.words import TextQuery
from instep.errors import InstepError, UserError
from instep.targets import request_limits as shared

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


#: Ids of points are made from this: never change it, or every chunk is stored a second time.
NAMESPACE = uuid.UUID("1dd39998-2c80-57bc-a89c-1dbfa3c4f6a3")

#: What goes into one request at most. A server takes 32 MB, unless it is configured otherwise.
REQUEST_ROWS = 1_000
REQUEST_BYTES = 8 * 1024 * 1024

#: Bytes of a number in JSON, and of what surrounds a row's own text: estimates, on the safe side.
_NUMBER = 20
_ROW = 400

VERSION = "_version"


def point_id(chunk_id: str) -> str:
    """The point of a chunk: the same one for every writer and every time."""
    return str(uuid.uuid5(NAMESPACE, chunk_id))


@dataclass(frozen=True, slots=True)
class Points:
    """Points to write; `vectors` has one row per point, or is None where a collection has no vectors."""

    ids: Sequence[str]
    payloads: Sequence[Mapping[str, Any]]
    vectors: np.ndarray[Any, np.dtype[np.float32]] | None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Where:
    """A condition on points: all of it holds. `missing` names a field that is not there."""

    ids: Sequence[str] = ()
    any_of: Mapping[str, Sequence[str]] = field(default_factory=dict)
    above: Mapping[str, int] = field(default_factory=dict)
    at_most: Mapping[str, int] = field(default_factory=dict)
    missing: str = ""


def points_of(rows: pa.RecordBatch) -> Points:
    """Rows of `row_schema`: the vector aside, its columns are the payload. A boolean is 0 or 1:
    the engine in this process has no way to ask for true or false.
    """
    vectors: Any = rows.column("vector")
    flat = vectors.flatten().to_numpy(zero_copy_only=False)
    payloads = shared.records(without_booleans(rows))
    return Points([point_id(each["chunk_id"]) for each in payloads], payloads, flat.reshape(rows.num_rows, -1))


def without_booleans(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with their booleans as they are stored."""
    import pyarrow as pa

    columns = [each.cast(pa.int8()) if pa.types.is_boolean(each.type) else each for each in rows.columns]
    return pa.RecordBatch.from_arrays(columns, rows.schema.names)


def requests(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    return shared.requests(rows, sizes, most_rows=REQUEST_ROWS, most_bytes=REQUEST_BYTES)


#: About how many bytes of JSON each row is.
sizes = partial(shared.row_sizes, row=_ROW, number=_NUMBER)


#: How a field of the payload is indexed: `text` for words, ranked by BM25.
FieldIndex = Literal["keyword", "integer", "float", "text"]

#: Words are what stands between spaces: `domain.words` has made them.
TEXT_INDEX: Mapping[str, Any] = {
    "tokenizer": "whitespace",
    "lowercase": False,
    "phrase_matching": True,
    "scoring": True,
}


#: More different values than a field of texts has.
MOST_VALUES: Final = 10_000_000


class TooLarge(InstepError):
    """A request has more bytes than Qdrant takes: in parts it may do with them."""


class Missing(UserError):
    """The collection does not exist."""


class Scored(NamedTuple):
    score: float
    payload: Mapping[str, Any]


class Page(NamedTuple):
    """Payloads in the order of their points' ids; `next` is where to go on, None at the end."""

    payloads: Sequence[Mapping[str, Any]]
    next: str | None


class Collections(Protocol):
    """Every write is seen by every later read. All of them may be repeated."""

    @property
    def shown(self) -> str:
        """The address without secrets."""

    def check(self) -> None:
        """Check that collections can be used. Raises `UserError` or `Away` if not."""

    def names(self) -> list[str]: ...

    def dimensions(self, name: str) -> int | None:
        """The dimensions of its vectors (0: it has none), or None: there is no such collection."""

    def indexed(self, name: str) -> frozenset[str]:
        """The fields that have an index: those of all columns that it was made with, and no others. (Points tell less:
        a server forgets fields that are replaced by null.)
        """

    def create(self, name: str, dimensions: int, indexes: Mapping[str, FieldIndex]) -> None:
        """Create a collection; with 0 dimensions, without vectors. What of it is there already stays."""

    def drop(self, name: str) -> None: ...

    def upsert(self, name: str, points: Points, *, only_if: Where) -> None:
        """Write points; those that are there only if they meet the condition: that is looked at in the same step."""

    def retell(self, name: str, payloads: Mapping[str, Mapping[str, Any]], *, only_if: Where) -> None:
        """Replace fields of payloads, by point, of those points that are there and meet the condition."""

    def delete(self, name: str, where: Where) -> None: ...

    def page(self, name: str, where: Where, *, fields: Sequence[str], limit: int, after: str | None = None) -> Page: ...

    def last(self, name: str, where: Where, by: str) -> Mapping[str, Any] | None:
        """The payload with the highest value of an indexed field."""

    def get(self, name: str, ids: Sequence[str], *, fields: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """Payloads by id, of the points that are there."""

    def vectors(self, name: str, ids: Sequence[str]) -> Mapping[str, Sequence[float]]:
        """Read vectors by id, of the points that exist."""

    def count(self, name: str) -> int: ...

    def values(self, name: str, field: str) -> list[str]:
        """The different values of a field of texts that is indexed by `keyword`."""

    def counts(
        self, name: str, field: str, *, limit: int, words: TextQuery | None, chosen: Condition | None
    ) -> list[tuple[Any, int]]:
        """Count the values of an indexed field in the points that are `chosen` and that a search by words finds; the
        most frequent values first.
        """

    def nearest(
        self, name: str, vector: Sequence[float], *, fields: Sequence[str], limit: int, chosen: Condition | None
    ) -> list[Scored]:
        """Search by a vector among the points that are `chosen` (None: all), without an order of strings."""

    def ranked(
        self, name: str, words: TextQuery, *, fields: Sequence[str], limit: int, chosen: Condition | None
    ) -> list[Scored]:
        """Search by BM25 among those, in a collection with an index of kind `text` on the field of words. Raises
        `UserError` without one.
        """

    def sync(self, name: str) -> None:
        """Make writes survive a loss of power."""

    def tidy(self, name: str) -> None:
        """After a load: let searches find their way through what was written, and free what was deleted."""

    def refinable(self, name: str) -> bool:
        """See `DocumentTarget.refinable`."""

    def refine(self, name: str) -> None:
        """See `DocumentTarget.refine`."""

    def pointed(self, alias: str) -> str | None:
        """The collection that readers find by this other name."""

    def point(self, alias: str, name: str | None) -> None:
        """Let readers find a collection by this name, in one step; None: no longer any."""


def pages(
    collections: Collections, name: str, where: Where, *, fields: Sequence[str], limit: int
) -> Iterator[Sequence[Mapping[str, Any]]]:
    """The payloads of all points that meet the condition, page by page."""
    after = None
    while True:
        page = collections.page(name, where, fields=fields, limit=limit, after=after)
        yield page.payloads
        after = page.next
        if after is None:
            return
