"""The log of `instep.targets.journal`, of an index or an alias, in an index of its own: entries are only ever created.

The server decides by its id whether an entry is in. The index is refreshed before each search, so that every confirmed
entry is found.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from instep.domain.identity import content_hash
from instep.errors import UserError
from instep.targets import journal
from instep.targets.journal import Entry, now
from instep.targets.opensearch.indexes import Indexes
from instep.targets.opensearch.layout import LATER, STATE, STATE_INDEX
from instep.targets.request_limits import portions

#: Slices in one question, and entries in one answer.
_SLICES_AT_ONCE = 200
_PAGE = 200


@dataclass(frozen=True, slots=True)
class Log(journal.Log):
    """See `instep.targets.journal.Log`. `scope`: the partition whose epochs count, where several share the log."""

    indexes: Indexes
    name: str
    scope: str | None = None

    @property
    def shown(self) -> str:
        return self.indexes.shown

    def head(self) -> Entry | None:
        return self._last()

    def own(self, head: Entry | None) -> Entry | None:
        return head if self.scope is None else self._last(*self._own)

    @property
    def tags(self) -> Mapping[str, str]:
        return {} if self.scope is None else {"scope": self.scope}

    @property
    def _own(self) -> list[Mapping[str, Any]]:
        return [{"term": dict(self.tags)}] if self.tags else []

    def _last(self, *more: Mapping[str, Any]) -> Entry | None:
        self.indexes.refresh(STATE)
        body = {"query": self._having({"range": {"seq": {"gte": 0}}}, *more), "sort": [{"seq": "desc"}], "size": 1}
        found = self.indexes.search(STATE, body)
        return found[0]["_source"] if found else None

    def add(self, seq: int, **said: Any) -> bool:
        """An answer may be lost, and the entry in: its token tells whose it is."""
        token = uuid.uuid4().hex
        id = self._id(f"{seq:d}")
        entry = {"log": self.name, "seq": seq, "token": token, "at": now(), **self.tags, **said}
        if seq == 0:
            # The index for logs is made first: OpenSearch would make one by itself, of another form.
            self.indexes.create(STATE, STATE_INDEX)
        if self._added(id, entry):
            return True
        return self.indexes.get(STATE, [id], ["token"]).get(id, {}).get("token") == token

    def _added(self, id: str, entry: Entry) -> bool:
        try:
            return self.indexes.add(STATE, id, entry)
        except UserError as error:
            # An index that was made before owners and partitions were recorded in it.
            if not LATER.keys() & entry.keys() or "strict_dynamic_mapping" not in str(error):
                raise
        self.indexes.widen(STATE, LATER)
        return self.indexes.add(STATE, id, entry)

    def sync(self) -> None:
        """Nothing: OpenSearch confirms what is on the disk."""

    def entry(self, seq: int) -> Entry | None:
        id = self._id(f"{seq:d}")
        return self.indexes.get(STATE, [id], ["epoch", "entry", "scope"]).get(id)

    def entries(self, *, since: int, slice_ids: Sequence[str] | None = None) -> Iterator[Entry]:
        self.indexes.refresh(STATE)
        above = {"range": {"seq": {"gt": since}}}
        if slice_ids is None:
            yield from self._pages(self._having(above))
            return
        for slices in portions(slice_ids, _SLICES_AT_ONCE):
            some = {"terms": {"slices": list(slices)}}
            yield from self._pages(self._having(above, some))

    def _pages(self, query: Mapping[str, Any]) -> Iterator[Entry]:
        after: dict[str, Any] = {}
        while True:
            body = {"query": query, "sort": [{"seq": "asc"}], "size": _PAGE, **after}
            found = self.indexes.search(STATE, body)
            yield from (each["_source"] for each in found)
            if len(found) < _PAGE:
                return
            after = {"search_after": found[-1]["sort"]}

    def _store(self, pieces: Mapping[str, Entry]) -> None:
        self.indexes.add_all(STATE, pieces)

    def _outcomes(self, ids: Sequence[str]) -> Mapping[str, Entry]:
        return self.indexes.get(STATE, ids, ["outcome"])

    def forget(self, epoch: int, keep_seconds: float) -> None:
        before = now() - int(keep_seconds * 1000)
        old = [{"range": {"epoch": {"lt": epoch}}}, {"range": {"at": {"lte": before}}}]
        self.indexes.delete(STATE, self._having(*old, *self._own))

    def drop(self) -> None:
        self.indexes.refresh(STATE)
        self.indexes.delete(STATE, self._having())

    def _having(self, *more: Mapping[str, Any]) -> dict[str, Any]:
        return {"bool": {"filter": [{"term": {"log": self.name}}, *more]}}

    def _id(self, *what: str) -> str:
        return content_hash("\0".join((self.name, *what)).encode())
