"""Collections of a Qdrant server, through its own client: connection, retries, the meaning of errors."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

from instep.domain.filters import Condition
from instep.domain.texts import without
from instep.domain.words import TextQuery
from instep.errors import Away, Transient, UserError
from instep.servers.calls import Greeting, tries, within
from instep.targets.document_target import SEARCHED
from instep.targets.probe import probe
from instep.targets.qdrant.collections import (
    MOST_VALUES,
    TEXT_INDEX,
    FieldIndex,
    Missing,
    Page,
    Points,
    Scored,
    TooLarge,
    Where,
)
from instep.targets.qdrant.filtering import having

if TYPE_CHECKING:
    from qdrant_client import QdrantClient


T = TypeVar("T")

#: Seconds of one request.
_TIMEOUT = 120

_GREETING = Greeting()

_TOO_MANY = 429
_SERVER_ERROR = 500
_REQUEST_TOO_LARGE = 413
_NOT_THERE = 404
_EXISTS = 409
_REFUSED = (401, 403)


class Exists(UserError):
    """A collection or an alias of this name is there."""


class _Unavailable(Exception):
    """Worth another try."""


@dataclass(frozen=True)
class Connection:
    """A connection to a server, whose errors never show the key."""

    url: str = field(repr=False)
    api_key: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """The address without secrets."""
        address = urlsplit(self.url)
        return f"{address.scheme}://{address.hostname or ''}:{address.port or 6333}"

    def open(self) -> QdrantClient:
        return _client(self.url, self.api_key, os.getpid())

    def call(self, ask: Callable[[QdrantClient], T]) -> T:
        """Call the server, again while it is out of reach or overloaded; a refused call is not repeated."""
        try:
            _GREETING.demand(self, lambda: self.open().info())
        except TimeoutError as error:
            raise Transient(f"{self.shown}: {error}") from None
        try:
            for attempt in tries(_Unavailable):
                with attempt, self._understood():
                    return within(2 * _TIMEOUT, lambda: ask(self.open()))
        except _Unavailable as error:
            raise Transient(f"{self.shown}: {error}") from None
        raise AssertionError("a retry ends with an answer or an error")

    @contextlib.contextmanager
    def _understood(self) -> Iterator[None]:
        from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
        from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

        try:
            yield
        except TimeoutError as error:
            _GREETING.forget(self)
            raise _Unavailable(str(error)) from None
        except ResourceExhaustedResponse as error:
            raise _Unavailable(f"it is overloaded: {self._hushed(error)}") from None
        except ResponseHandlingException as error:
            raise _Unavailable(f"it cannot be reached: {self._hushed(error.source)}") from None
        except UnexpectedResponse as error:
            raise self._meant(int(error.status_code or 0), self._hushed(_reason(error))) from None

    def _meant(self, status: int, reason: str) -> Exception:
        if status == _REQUEST_TOO_LARGE or "larger than allowed" in reason:
            return TooLarge(f"{self.shown}: {reason}")
        if "no space left" in reason.lower():
            return UserError("no space left for the index", where=self.shown, hint="Free some space, then run again.")
        if status == _TOO_MANY or status >= _SERVER_ERROR:
            return _Unavailable(f"it answered {status}: {reason}")
        if status in _REFUSED:
            return UserError(f"Qdrant refuses: {reason}", where=self.shown, hint="Check the target's api_key.")
        if status == _NOT_THERE:
            return Missing(f"there is no such index: {reason}", where=self.shown, hint="Build it with: instep run")
        kind = Exists if status == _EXISTS or "already exists" in reason else UserError
        return kind(f"Qdrant refused: {reason}", where=self.shown)

    def _hushed(self, said: object) -> str:
        text = str(said).strip() or type(said).__name__
        return without(text, self.api_key)


@cache
def _client(url: str, api_key: str | None, process: int) -> QdrantClient:
    """Kept: it keeps connections, which are no good to a fork (`process`)."""
    try:
        from qdrant_client import QdrantClient
    except ImportError:
        raise UserError("Qdrant needs qdrant-client", hint="pip install 'instep[qdrant]'") from None
    with warnings.catch_warnings():
        # That a key travels in clear text is for the project's documentation to say, not for every command.
        warnings.simplefilter("ignore", UserWarning)
        return QdrantClient(url=url, api_key=api_key, timeout=_TIMEOUT, check_compatibility=False)


def _reason(error: Any) -> str:
    """The reason in the server's answer."""
    try:
        said = error.structured()["status"]["error"]
    except (ValueError, KeyError, TypeError):
        said = error.content.decode(errors="replace")[:300] or error.reason_phrase
    return str(said)


#: Conditions on upserts came with this version, ranking of texts with the other.
_LEAST = (1, 16)
_RANKS = (1, 20)

#: A load goes without the index of vectors up to here; then it is built from this size on (kilobytes: Qdrant's own).
_NEVER = 0
_INDEXED_FROM = 20_000

#: Seconds that a new index is waited for before it is served without being complete: searches are right, and slower.
_TIMEOUT_SECONDS = 900.0
_POLL = 0.5


@dataclass(frozen=True)
class ServerCollections:
    """See `Collections`."""

    connection: Connection

    @property
    def shown(self) -> str:
        return self.connection.shown

    # -- collections ---------------------------------------------------------------------------

    def check(self) -> None:
        try:
            self._demand_version()
            name = f"instep-check-{uuid.uuid4().hex}"
            probe(partial(self.create, name, 0, {}), partial(self.drop, name))
        except Transient as error:
            raise Away(str(error), hint="Is the server up, the address right?") from None

    def _demand_version(self) -> None:
        version = self._version()
        if version < _LEAST:
            raise UserError(
                f"Qdrant {_dotted(version)} has no conditional updates, which keep out writers of the past",
                where=self.shown,
                hint=f"Use Qdrant {_dotted(_LEAST)} or newer; {_dotted(_RANKS)} for searches by text.",
            )

    def _version(self) -> tuple[int, int]:
        said = str(self.connection.call(lambda client: client.info()).version)
        major, minor, *_ = (*said.split("."), "0")
        return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else _RANKS

    def names(self) -> list[str]:
        return [each.name for each in self.connection.call(lambda client: client.get_collections()).collections]

    def dimensions(self, name: str) -> int | None:
        try:
            vectors = self.connection.call(lambda client: client.get_collection(name)).config.params.vectors
        except Missing:
            return None
        return int(getattr(vectors, "size", 0) or 0)

    def indexed(self, name: str) -> frozenset[str]:
        return frozenset(self.connection.call(lambda client: client.get_collection(name)).payload_schema)

    def create(self, name: str, dimensions: int, indexes: Mapping[str, FieldIndex]) -> None:
        from qdrant_client import models

        if not self.connection.call(lambda client: client.collection_exists(name)):
            vectors: Any = models.VectorParams(size=dimensions, distance=models.Distance.COSINE) if dimensions else {}
            loading = models.OptimizersConfigDiff(indexing_threshold=_NEVER)
            with contextlib.suppress(Exists):
                self.connection.call(partial(_create, name=name, vectors=vectors, optimizers=loading))
        ranks = "text" not in indexes.values() or self._version() >= _RANKS
        for indexed, kind in indexes.items():
            schema = _schema(kind, ranks=ranks)
            self.connection.call(partial(_create_index, name=name, field=indexed, schema=schema))

    def drop(self, name: str) -> None:
        with contextlib.suppress(Missing):
            self.connection.call(lambda client: client.delete_collection(name))

    # -- points --------------------------------------------------------------------------------

    def upsert(self, name: str, points: Points, *, only_if: Where) -> None:
        from qdrant_client import models

        vectors: Any = {} if points.vectors is None else points.vectors.tolist()
        batch = models.Batch(ids=list(points.ids), vectors=vectors, payloads=[dict(each) for each in points.payloads])
        condition = _filter(only_if)
        self.connection.call(
            lambda client: client.upsert(
                name, batch, update_filter=condition, wait=True, ordering=models.WriteOrdering.STRONG
            )
        )

    def retell(self, name: str, payloads: Mapping[str, Mapping[str, Any]], *, only_if: Where) -> None:
        from qdrant_client import models

        operations: Any = [
            models.SetPayloadOperation(
                set_payload=models.SetPayload(payload=dict(payload), filter=_filter(replace(only_if, ids=[id])))
            )
            for id, payload in payloads.items()
        ]
        self.connection.call(
            lambda client: client.batch_update_points(name, operations, wait=True, ordering=models.WriteOrdering.STRONG)
        )

    def delete(self, name: str, where: Where) -> None:
        from qdrant_client import models

        selector = models.FilterSelector(filter=_filter(where))
        self.connection.call(
            lambda client: client.delete(name, selector, wait=True, ordering=models.WriteOrdering.STRONG)
        )

    def page(self, name: str, where: Where, *, fields: Sequence[str], limit: int, after: str | None = None) -> Page:
        found, following = self.connection.call(
            lambda client: client.scroll(
                name,
                scroll_filter=_filter(where),
                limit=limit,
                offset=after,
                with_payload=list(fields),
                with_vectors=False,
            )
        )
        return Page([each.payload or {} for each in found], None if following is None else str(following))

    def last(self, name: str, where: Where, by: str) -> Mapping[str, Any] | None:
        from qdrant_client import models

        order = models.OrderBy(key=by, direction=models.Direction.DESC)
        found, _ = self.connection.call(
            lambda client: client.scroll(name, scroll_filter=_filter(where), order_by=order, limit=1, with_payload=True)
        )
        return (found[0].payload or {}) if found else None

    def get(self, name: str, ids: Sequence[str], *, fields: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        if not ids:
            return {}
        found = self.connection.call(lambda client: client.retrieve(name, list(ids), with_payload=list(fields)))
        return {str(each.id): each.payload or {} for each in found}

    def vectors(self, name: str, ids: Sequence[str]) -> Mapping[str, Sequence[float]]:
        found = self.connection.call(
            lambda client: client.retrieve(name, list(ids), with_payload=False, with_vectors=True)
        )
        return {str(each.id): cast("Sequence[float]", each.vector) for each in found}

    def count(self, name: str) -> int:
        return int(self.connection.call(lambda client: client.count(name, exact=True)).count)

    # -- searches ------------------------------------------------------------------------------

    def values(self, name: str, field: str) -> list[str]:
        found = self.connection.call(lambda client: client.facet(name, key=field, limit=MOST_VALUES, exact=True))
        return [str(each.value) for each in found.hits]

    def counts(
        self, name: str, field: str, *, limit: int, words: TextQuery | None, chosen: Condition | None
    ) -> list[tuple[Any, int]]:
        among = having(words, chosen, _ServerWords())
        found = self.connection.call(
            lambda client: client.facet(name, key=field, facet_filter=among, limit=limit, exact=True)
        )
        return [(each.value, each.count) for each in found.hits]

    def nearest(
        self, name: str, vector: Sequence[float], *, fields: Sequence[str], limit: int, chosen: Condition | None
    ) -> list[Scored]:
        passes = having(None, chosen, _ServerWords())
        found = self.connection.call(
            lambda client: client.query_points(
                name, query=list(vector), query_filter=passes, limit=limit, with_payload=list(fields)
            )
        )
        return [Scored(each.score, each.payload or {}) for each in found.points]

    def ranked(
        self, name: str, words: TextQuery, *, fields: Sequence[str], limit: int, chosen: Condition | None
    ) -> list[Scored]:
        from qdrant_client import models

        passes = having(TextQuery((), words.phrases), chosen, _ServerWords())
        query = models.TextQuery(text=words.text)
        try:
            found = self.connection.call(
                lambda client: client.query_points(
                    name, query=query, using=SEARCHED, query_filter=passes, limit=limit, with_payload=list(fields)
                )
            )
        except UserError:
            if self._version() >= _RANKS:
                raise
            raise UserError(
                f"this Qdrant cannot rank texts: {_dotted(_RANKS)} can",
                where=self.shown,
                hint="Search with --mode vector, or upgrade the server and build the index again.",
            ) from None
        return [Scored(each.score, each.payload or {}) for each in found.points]

    # -- upkeep --------------------------------------------------------------------------------

    def sync(self, name: str) -> None:
        """Nothing: every write was waited for."""

    def tidy(self, name: str) -> None:
        """Qdrant indexes and compacts by itself, once it may; the next search does not wait for it."""
        from qdrant_client import models

        optimizers = self.connection.call(lambda client: client.get_collection(name)).config.optimizer_config
        if optimizers.indexing_threshold != _NEVER:
            return
        usual = models.OptimizersConfigDiff(indexing_threshold=_INDEXED_FROM)
        self.connection.call(lambda client: client.update_collection(name, optimizers_config=usual))
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while self.connection.call(lambda client: client.get_collection(name)).status in _AT_WORK:
            if time.monotonic() > deadline:
                return
            time.sleep(_POLL)

    def refinable(self, name: str) -> bool:
        """Never: `tidy` has waited for the index."""
        return False

    def refine(self, name: str) -> None:
        """Nothing: see `refinable`."""

    def pointed(self, alias: str) -> str | None:
        found = self.connection.call(lambda client: client.get_aliases()).aliases
        return next((each.collection_name for each in found if each.alias_name == alias), None)

    def point(self, alias: str, name: str | None) -> None:
        from qdrant_client import models

        changes: list[Any] = [models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=alias))]
        if name is not None:
            create = models.CreateAlias(collection_name=name, alias_name=alias)
            changes.append(models.CreateAliasOperation(create_alias=create))
        self.connection.call(lambda client: client.update_collection_aliases(changes))


#: What a collection says of itself while its index is being built, or waits for that.
_AT_WORK = ("yellow", "grey")


def _create(client: QdrantClient, *, name: str, vectors: Any, optimizers: Any) -> None:
    client.create_collection(name, vectors_config=vectors, optimizers_config=optimizers)


def _create_index(client: QdrantClient, *, name: str, field: str, schema: Any) -> None:
    client.create_payload_index(name, field, field_schema=schema, wait=True)


def _schema(kind: FieldIndex, *, ranks: bool) -> Any:
    from qdrant_client import models

    if kind != "text":
        return models.PayloadSchemaType(kind)
    settings: dict[str, Any] = {name: value for name, value in TEXT_INDEX.items() if ranks or name != "scoring"}
    return models.TextIndexParams(type=models.TextIndexType.TEXT, **settings)


def _filter(where: Where) -> Any:
    from qdrant_client import models

    must: list[Any] = [models.HasIdCondition(has_id=list(where.ids))] if where.ids else []
    for key, values in where.any_of.items():
        must.append(models.FieldCondition(key=key, match=models.MatchAny(any=list(values))))
    for key, value in where.above.items():
        must.append(models.FieldCondition(key=key, range=models.Range(gt=value)))
    for key, value in where.at_most.items():
        must.append(models.FieldCondition(key=key, range=models.Range(lte=value)))
    if where.missing:
        must.append(models.IsEmptyCondition(is_empty=models.PayloadField(key=where.missing)))
    return models.Filter(must=must)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


class _ServerWords:
    """See `filtering.Words`."""

    def filter(self, must: Sequence[Any] = (), should: Sequence[Any] = (), must_not: Sequence[Any] = ()) -> Any:
        from qdrant_client import models

        return models.Filter(must=list(must), should=list(should) or None, must_not=list(must_not))

    def one_of(self, field: str, values: Sequence[Any]) -> Any:
        from qdrant_client import models

        return models.FieldCondition(key=field, match=models.MatchAny(any=list(values)))

    def range(self, field: str, **bounds: float) -> Any:
        from qdrant_client import models

        return models.FieldCondition(key=field, range=models.Range(**bounds))

    def prefix(self, field: str, prefix: str) -> Any:
        from qdrant_client import models

        return models.FieldCondition(key=field, match=models.MatchPrefix(prefix=prefix))

    def phrase(self, field: str, words: str) -> Any:
        from qdrant_client import models

        return models.FieldCondition(key=field, match=models.MatchPhrase(phrase=words))

    def any_word(self, field: str, words: str) -> Any:
        from qdrant_client import models

        return models.FieldCondition(key=field, match=models.MatchTextAny(text_any=words))

    def empty(self, field: str) -> Any:
        from qdrant_client import models

        return models.IsEmptyCondition(is_empty=models.PayloadField(key=field))
