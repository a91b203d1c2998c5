"""Requests to a server of OpenSearch or Elasticsearch."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from instep.errors import Away, Transient, UserError
from instep.targets.opensearch import layout
from instep.targets.opensearch.connection import Connection, Missing, Taken, Unavailable, path
from instep.targets.opensearch.layout import STATE, Dialect, coded, decoded, spoken

#: Entries that are removed at once.
_REMOVED = 1_000

#: How long the server keeps a point in time for the next page.
_KEEP = "10m"

#: Of several copies of an index all questions go to the same one: what one answer showed no later one lacks.
_ONE_COPY: Final[Mapping[str, str]] = {"preference": "instep"}


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
        except Transient as error:
            raise Away(str(error), hint="Is the server up, the address right?") from None

    # -- indexes -------------------------------------------------------------------------------

    def names(self) -> list[str]:
        found = self.connection.ask("GET", "/_all/_settings/index.uuid", params={"expand_wildcards": "open"})
        return [name for each in found if each != STATE and (name := decoded(each)) is not None]

    def create(self, index: str, body: Mapping[str, Any]) -> None:
        """What is there stays as it is."""
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
        with contextlib.suppress(Missing):
            self.connection.ask("DELETE", path(coded(name)))

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

    def point(self, alias: str, name: str | None) -> None:
        """Let readers find an index by this name, in one step; None: no longer any."""
        wanted = [] if name is None else [coded(name)]
        there = self.behind(alias)
        if there == wanted:
            return
        actions: list[Any] = [{"remove": {"index": each, "alias": alias}} for each in there]
        actions += [{"add": {"index": each, "alias": alias}} for each in wanted]
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
        """Those whose id is there already stay as they are."""
        lines = [json.dumps(each) for id, said in found.items() for each in ({"create": {"_id": id}}, said)]
        answer = self.connection.ask("POST", path(index, "_bulk"), "\n".join(lines) + "\n")
        for each in answer["items"]:
            if each["create"]["status"] not in (200, 201, 409):
                raise Transient(f"{self.shown}: the journal was not written: {each['create'].get('error')}")

    def get(self, index: str, ids: Sequence[str], fields: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """As they were last written, by id, of those that are there."""
        if not ids:
            return {}
        body = {"ids": list(ids)}
        try:
            found = self.connection.ask("POST", path(index, "_mget"), body, params={"_source": ",".join(fields)})
        except Missing:
            return {}
        return {each["_id"]: each["_source"] for each in found["docs"] if each.get("found")}

    def search(self, index: str, body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Hits; none where there is no such index. Raises `Transient` unless all shards have answered."""
        params = {"ignore_unavailable": "true", "allow_partial_search_results": "false", **_ONE_COPY}
        answer = self.connection.ask("POST", path(index, "_search"), body, params=params)
        return list(answer["hits"]["hits"])

    def pages(self, index: str, body: Mapping[str, Any], size: int) -> Iterator[list[Mapping[str, Any]]]:
        """All hits as of now, in the order of a sort that tells any two apart."""
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

    def count(self, name: str) -> int:
        return int(self.connection.ask("GET", path(coded(name), "_count"))["count"])

    def delete(self, index: str, query: Mapping[str, Any]) -> None:
        """What a query finds."""
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
