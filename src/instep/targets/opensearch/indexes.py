"""Requests to a server of OpenSearch or Elasticsearch: its client, retries, the meaning of errors, indexes."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from instep.domain.texts import without
from instep.errors import Away, InstepError, Transient, UserError
from instep.servers.calls import Greeting, tries, within
from instep.targets.opensearch import layout
from instep.targets.opensearch.layout import PROBE, STATE, Dialect, coded, decoded, spoken
from instep.targets.probe import probe

if TYPE_CHECKING:
    from opensearchpy import OpenSearch
    from opensearchpy.exceptions import TransportError


#: Seconds of one request.
TIMEOUT = 120

_TOO_MANY = 429
_SERVER_ERROR = 500
_REQUEST_TOO_LARGE = 413
_NOT_THERE = 404
_TAKEN = 409
_REFUSED = (401, 403)

_NO_ANSWER = f"no answer within {TIMEOUT} s"
_GREETING = Greeting()

#: Connections kept to a server: more than one task has in flight.
_POOL = 32


class TooLarge(InstepError):
    """A request has more bytes than the server takes: in parts it may do with them."""


class Missing(UserError):
    """The index, document or alias does not exist."""


class Taken(UserError):
    """The thing to be created exists, or is newer."""


class Unavailable(Exception):
    """Worth another try."""


@dataclass(frozen=True)
class Connection:
    """A connection to a server, whose errors never show a secret."""

    url: str = field(repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """The address without secrets."""
        address = urlsplit(self.url)
        port = address.port or (443 if address.scheme == "https" else 9200)
        return f"{address.scheme}://{address.hostname or ''}:{port}"

    def ask(
        self, method: str, path: str, body: Any = None, *, params: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send a request, again while the server is out of reach or overloaded; a refused one is not repeated."""
        try:
            for attempt in tries(Unavailable):
                with attempt:
                    return self.once(method, path, body, params=params)
        except Unavailable as error:
            raise Transient(f"{self.shown}: {error}") from None
        raise AssertionError("a retry ends with an answer or an error")

    def once(
        self, method: str, path: str, body: Any = None, *, params: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send a request once. Raises `Unavailable` when another try may succeed."""
        client = _client(self.url, self.user, self.password, self.api_key, os.getpid())
        try:
            _GREETING.demand(self, partial(client.transport.perform_request, "GET", "/"))
        except TimeoutError as error:
            raise Transient(f"{self.shown}: {error}") from None
        with self._understood():
            ask = partial(client.transport.perform_request, method, path, params=dict(params or {}), body=body)
            answer = within(2 * TIMEOUT, ask)
        if not isinstance(answer, dict):
            raise Unavailable(f"it answered something else than expected: {str(answer)[:100]!r}")
        return answer

    @contextlib.contextmanager
    def _understood(self) -> Iterator[None]:
        from opensearchpy.exceptions import (
            AuthenticationException,
            AuthorizationException,
            ConnectionError,
            ConnectionTimeout,
            SerializationError,
            TransportError,
        )

        try:
            yield
        except (TimeoutError, ConnectionTimeout) as error:
            _GREETING.forget(self)
            raise Unavailable(str(error) if isinstance(error, TimeoutError) else _NO_ANSWER) from None
        except ConnectionError as error:
            raise Unavailable(f"it cannot be reached: {self._hushed(error.error)}") from None
        except SerializationError:
            raise Unavailable("its answer cannot be read") from None
        except (AuthenticationException, AuthorizationException) as error:
            raise self._meant(int(error.status_code), self._hushed(_reason(error))) from None
        except TransportError as error:
            raise self._meant(int(error.status_code), self._hushed(_reason(error))) from None

    def _meant(self, status: int, reason: str) -> Exception:
        if status == _REQUEST_TOO_LARGE:
            return TooLarge(f"{self.shown}: {reason}")
        if status == _TOO_MANY or status >= _SERVER_ERROR:
            return Unavailable(f"it answered {status}: {reason}")
        if "flood-stage" in reason or "read-only-allow-delete" in reason:
            return UserError("no space left for the index", where=self.shown, hint="Free some space, then run again.")
        if status in _REFUSED:
            hint = "Check the target's user and password, or its api_key."
            return UserError(f"the server refuses: {reason}", where=self.shown, hint=hint)
        if status == _NOT_THERE:
            return Missing(f"there is no such index: {reason}", where=self.shown, hint="Build it with: instep run")
        taken = status == _TAKEN or "already_exists" in reason
        return (Taken if taken else UserError)(f"the server refused: {reason}", where=self.shown)

    def _hushed(self, said: object) -> str:
        return without(str(said).strip(), self.password, self.api_key)


def path(*parts: str) -> str:
    """Names as a path of a URL."""
    return "/" + "/".join(quote(each, safe="") for each in parts)


@cache
def _client(url: str, user: str | None, password: str | None, api_key: str | None, process: int) -> OpenSearch:
    """Kept: it keeps connections, which are no good to a fork (`process`)."""
    try:
        from opensearchpy import OpenSearch
    except ImportError:
        raise UserError("OpenSearch needs opensearch-py", hint="pip install 'instep[opensearch]'") from None
    # What goes wrong is Instep's to say.
    logging.getLogger("opensearch").addHandler(logging.NullHandler())
    return OpenSearch(
        [url],
        http_auth=(user, password or "") if user else None,
        headers={"Authorization": f"ApiKey {api_key}"} if api_key else None,
        timeout=TIMEOUT,
        max_retries=0,
        pool_maxsize=_POOL,
    )


def _reason(error: TransportError) -> str:
    """The reason in the server's answer."""
    info = error.info
    said = info.get("error") if isinstance(info, dict) else None
    if isinstance(said, dict):
        return f"{said.get('type')}: {said.get('reason')}"
    return str(said or error.error)[:300]


#: Entries that are removed at once.
_REMOVED = 1_000

#: How long the server keeps a point in time for the next page.
_KEEP = "10m"

#: An answer is of all shards, or none.
_WHOLE: Final[Mapping[str, str]] = {"allow_partial_search_results": "false"}

#: Of several copies of an index all questions go to the same one: what one answer showed no later one lacks.
_ONE_COPY: Final[Mapping[str, str]] = {"preference": "instep"}


class Found(NamedTuple):
    """A document as it was last written, and which write that was."""

    source: Mapping[str, Any]
    seq_no: int
    primary_term: int


@dataclass(frozen=True)
class Indexes:
    connection: Connection

    @property
    def shown(self) -> str:
        return self.connection.shown

    @property
    def dialect(self) -> Dialect:
        return _spoken(self.connection)

    def check(self) -> None:
        try:
            _spoken(self.connection)
            name = f"{PROBE}{uuid.uuid4().hex}"
            settings = {"settings": {"index": {"number_of_shards": 1, "number_of_replicas": 0}}}
            probe(partial(self.create, name, settings), partial(self.drop_index, name))
        except Transient as error:
            raise Away(str(error), hint="Is the server up, the address right?") from None

    # -- indexes -------------------------------------------------------------------------------

    def names(self) -> list[str]:
        found = self.connection.ask("GET", "/_all/_settings/index.uuid", params={"expand_wildcards": "open"})
        return [name for each in found if each != STATE and (name := decoded(each)) is not None]

    def create(self, index: str, body: Mapping[str, Any]) -> None:
        """Create an index, unless it exists."""
        with contextlib.suppress(Taken):
            self.connection.ask("PUT", path(index), body)

    def mappings(self, name: str) -> Mapping[str, Any] | None:
        try:
            found = self.connection.ask("GET", path(coded(name), "_mapping"))
        except Missing:
            return None
        return dict(found[coded(name)]["mappings"]) if coded(name) in found else None

    def widen(self, index: str, properties: Mapping[str, Any]) -> None:
        """Give its documents more fields."""
        self.connection.ask("PUT", path(index, "_mapping"), {"properties": dict(properties)})

    def drop(self, name: str) -> None:
        self.drop_index(coded(name))

    def drop_index(self, index: str) -> None:
        with contextlib.suppress(Missing):
            self.connection.ask("DELETE", path(index))

    def refresh(self, index: str) -> None:
        """Searches from now on find all writes confirmed until now."""
        self.connection.ask("POST", path(index, "_refresh"), params={"ignore_unavailable": "true"})

    def serve(self, name: str) -> None:
        """End of building: refreshed by itself, with replicas, which are waited for a while."""
        index = coded(name)
        found = self.connection.ask("GET", path(index, "_settings"), params={"flat_settings": "true"})
        if not layout.is_building(found[index]["settings"]):
            return
        self.connection.ask("PUT", path(index, "_settings"), {"index": dict(layout.SERVING)})
        self.refresh(index)
        waited = {"wait_for_no_initializing_shards": "true", "wait_for_status": "yellow"}
        # A cluster that takes longer answers 408: searches are right, and slower.
        with contextlib.suppress(UserError):
            self.connection.ask("GET", path("_cluster", "health", index), params=waited)

    def expunge(self, name: str) -> None:
        """Free what was deleted. It may take longer than an answer is waited for: then it goes on by itself."""
        with contextlib.suppress(Unavailable):
            self.connection.once("POST", path(coded(name), "_forcemerge"), params={"only_expunge_deletes": "true"})

    # -- aliases -------------------------------------------------------------------------------

    def behind(self, alias: str) -> list[str]:
        """The indexes (as the server calls them) that an alias stands for."""
        try:
            return sorted(self.connection.ask("GET", path("_alias", alias)))
        except Missing:
            return []

    def aliases(self, pattern: str) -> list[tuple[str, str]]:
        """Indexes (as the server calls them) and their aliases of such names."""
        try:
            found = self.connection.ask("GET", path("_alias", pattern))
        except Missing:
            return []
        return [(index, alias) for index, each in found.items() for alias in each["aliases"]]

    def point(self, alias: str, name: str | None) -> None:
        """Let readers find an index by this name, in one step; None: no longer any."""
        self.point_all({alias: name})

    def point_all(self, aliases: Mapping[str, str | None], query: Mapping[str, Any] | None = None) -> None:
        """The same of several names, all in one step. `query`: of which documents only."""
        actions: list[Any] = []
        for alias, name in aliases.items():
            wanted = [] if name is None else [coded(name)]
            there = self.behind(alias)
            if there != wanted:
                actions += [{"remove": {"index": each, "alias": alias}} for each in there]
                filtered = {"filter": dict(query)} if query else {}
                actions += [{"add": {"index": each, "alias": alias, **filtered}} for each in wanted]
        if not actions:
            return
        # Another process may just have removed it; what is there is looked at again.
        with contextlib.suppress(Missing):
            self.connection.ask("POST", "/_aliases", {"actions": actions})

    # -- documents -----------------------------------------------------------------------------

    def add(self, index: str, id: str, said: Mapping[str, Any]) -> bool:
        """Whether it is in now; False: there is one of this id (maybe this very one, whose answer was lost)."""
        try:
            self.connection.ask("PUT", path(index, "_create", id), dict(said))
        except Taken:
            return False
        return True

    def add_all(self, index: str, found: Mapping[str, Mapping[str, Any]]) -> None:
        """Add documents; those whose id exists stay unchanged."""
        lines = [json.dumps(each) for id, said in found.items() for each in ({"create": {"_id": id}}, said)]
        answer = self.connection.ask("POST", path(index, "_bulk"), "\n".join(lines) + "\n")
        for each in answer["items"]:
            if each["create"]["status"] not in (200, 201, 409):
                raise Transient(f"{self.shown}: the journal was not written: {each['create'].get('error')}")

    def get(self, index: str, ids: Sequence[str], fields: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """Read documents as they were last written, by id."""
        if not ids:
            return {}
        body = {"ids": list(ids)}
        try:
            found = self.connection.ask("POST", path(index, "_mget"), body, params={"_source": ",".join(fields)})
        except Missing:
            return {}
        return {each["_id"]: each["_source"] for each in found["docs"] if each.get("found")}

    def look(self, index: str, ids: Sequence[str], fields: Sequence[str]) -> dict[str, Found]:
        """Read documents as they were last written, by id, with which write that was."""
        body = {"ids": list(ids)}
        answer = self.connection.ask("POST", path(index, "_mget"), body, params={"_source": ",".join(fields)})
        found: dict[str, Found] = {}
        for each in answer["docs"]:
            if "error" in each:
                raise Transient(f"{self.shown}: {index!r} was not read: {each['error'].get('reason')}")
            if each.get("found"):
                found[each["_id"]] = Found(each["_source"], each["_seq_no"], each["_primary_term"])
        return found

    def search(self, index: str, body: Mapping[str, Any], *, demanded: bool = False) -> list[Mapping[str, Any]]:
        """Hits; none where there is no such index, or `Missing` if it is `demanded`. Raises `Transient` unless all
        shards have answered.
        """
        params = {"ignore_unavailable": str(not demanded).lower(), **_WHOLE, **_ONE_COPY}
        answer = self.connection.ask("POST", path(index, "_search"), body, params=params)
        return list(answer["hits"]["hits"])

    def counts(self, index: str, body: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
        """Buckets of aggregations, by their names. Raises `Transient` unless all shards have answered."""
        answer = self.connection.ask("POST", path(index, "_search"), body, params={**_WHOLE, **_ONE_COPY})
        return {name: list(each["buckets"]) for name, each in answer["aggregations"].items()}

    def pages(self, index: str, body: Mapping[str, Any], size: int) -> Iterator[list[Mapping[str, Any]]]:
        """Read all hits as of now, in the order of a sort without ties."""
        opened = self.connection.ask(
            "POST", path(index, *self.dialect.opening), params={"keep_alive": _KEEP, **_ONE_COPY}
        )
        moment = {"id": opened[self.dialect.opened], "keep_alive": _KEEP}
        try:
            after: dict[str, Any] = {}
            while True:
                asked = {**body, "size": size, "pit": moment, "track_total_hits": False, **after}
                found = self.connection.ask("POST", "/_search", asked)
                if found["_shards"]["failed"]:
                    raise Transient(f"{self.shown}: not all shards of {index!r} have answered")
                hits = found["hits"]["hits"]
                if hits:
                    yield hits
                if len(hits) < size:
                    return
                after = {"search_after": hits[-1]["sort"]}
        finally:
            with contextlib.suppress(Missing, Transient):
                self.connection.ask("DELETE", *self.dialect.closing(moment["id"]))

    def scroll(self, index: str, body: Mapping[str, Any], size: int) -> Iterator[list[Mapping[str, Any]]]:
        """Read all hits as of now, in any order."""
        asked = {**body, "size": size, "sort": ["_doc"]}
        found = self.connection.ask("POST", path(index, "_search"), asked, params={"scroll": _KEEP, **_WHOLE})
        try:
            while hits := found["hits"]["hits"]:
                yield hits
                # Asked once: the next page is not the same for a second try.
                try:
                    found = self.connection.once(
                        "POST", "/_search/scroll", {"scroll": _KEEP, "scroll_id": found["_scroll_id"]}
                    )
                except Unavailable as error:
                    raise Transient(f"{self.shown}: {error}") from None
                if found["_shards"]["failed"]:
                    raise Transient(f"{self.shown}: not all shards of {index!r} have answered")
        finally:
            with contextlib.suppress(UserError, Transient):
                self.connection.ask("DELETE", "/_search/scroll", {"scroll_id": found["_scroll_id"]})

    def count(self, name: str, query: Mapping[str, Any] | None = None) -> int:
        body = {"query": dict(query)} if query else None
        return int(self.connection.ask("GET", path(coded(name), "_count"), body)["count"])

    def delete(self, index: str, query: Mapping[str, Any]) -> None:
        """Delete the hits of a query."""
        body = {"query": dict(query), "size": _REMOVED, "_source": False}
        while found := self.search(index, body):
            lines = "".join(json.dumps({"delete": {"_id": each["_id"]}}) + "\n" for each in found)
            answer = self.connection.ask("POST", path(index, "_bulk"), lines, params={"refresh": "true"})
            for each in answer["items"]:
                if each["delete"]["status"] not in (200, 404):
                    raise Transient(f"{self.shown}: not all was removed: {each['delete'].get('error')}")


@cache
def _spoken(connection: Connection) -> Dialect:
    said = connection.ask("GET", "/").get("version", {})
    dialect = spoken(said)
    if dialect is None:
        raise UserError("this is neither OpenSearch nor Elasticsearch", where=connection.shown)
    least = ".".join(map(str, dialect.least))
    major, minor, *_ = (*str(said.get("number", "0")).split("."), "0")
    if (int(major), int(minor)) < dialect.least:
        raise UserError(
            f"{dialect.name} {major}.{minor} is too old", where=connection.shown, hint=f"Use {least} or newer."
        )
    return dialect
