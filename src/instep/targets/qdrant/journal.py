"""The log of `instep.targets.journal`, of an index or an alias, as points of the collection `_instep`."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from instep.errors import UserError
from instep.targets import journal
from instep.targets.journal import Entry, now
from instep.targets.qdrant.collections import NAMESPACE, Collections, FieldIndex, Missing, Points, Where, pages
from instep.targets.request_limits import portions

#: No entity has a name that begins so.
STATE = "_instep"
_INDEXES: Final[Mapping[str, FieldIndex]] = {
    "log": "keyword",
    "slices": "keyword",
    "seq": "integer",
    "epoch": "integer",
    "at": "integer",
}

#: Slices in one question, and entries in one answer. (These name the slices of a wave, so they may be long.)
_SLICES_AT_ONCE = 200
_PAGE = 200


@dataclass(frozen=True, slots=True)
class Log(journal.Log):
    """See `instep.targets.journal.Log`."""

    collections: Collections
    name: str

    @property
    def shown(self) -> str:
        return self.collections.shown

    def head(self) -> Entry | None:
        entries = Where(any_of={"log": [self.name]}, above={"seq": -1})
        try:
            return self.collections.last(STATE, entries, "seq")
        except Missing:
            return None
        except UserError:
            # Another process is just creating it: without its indexes it cannot answer.
            self.collections.create(STATE, 0, _INDEXES)
            return self.collections.last(STATE, entries, "seq")

    def add(self, seq: int, **said: Any) -> bool:
        token = uuid.uuid4().hex
        id = self._id(f"{seq:d}")
        entry = {"log": self.name, "seq": seq, "token": token, "at": now(), **said}
        try:
            self.collections.upsert(STATE, Points([id], [entry]), only_if=Where(missing="seq"))
        except Missing:
            self.collections.create(STATE, 0, _INDEXES)
            return self.add(seq, **said)
        return bool(self.collections.get(STATE, [id], fields=["token"])[id]["token"] == token)

    def sync(self) -> None:
        """Make entries survive a loss of power, when Instep asks for it, not at every entry. What a crash of the
        machine takes of a log are fences against writers that it has ended too, and outcomes of slices that are then
        run again.
        """
        self.collections.sync(STATE)

    def entry(self, seq: int) -> Entry | None:
        id = self._id(f"{seq:d}")
        return self.collections.get(STATE, [id], fields=["epoch", "entry"]).get(id)

    def entries(self, *, since: int, slice_ids: Sequence[str] | None = None) -> Iterator[Entry]:
        if slice_ids is None:
            yield from self._pages(Where(any_of={"log": [self.name]}, above={"seq": since}))
            return
        for some in portions(slice_ids, _SLICES_AT_ONCE):
            yield from self._pages(Where(any_of={"log": [self.name], "slices": some}, above={"seq": since}))

    def _pages(self, where: Where) -> Iterator[Entry]:
        fields = ["seq", "entry", "epoch", "attempt", "marks"]
        for page in pages(self.collections, STATE, where, fields=fields, limit=_PAGE):
            yield from page

    def _store(self, pieces: Mapping[str, Entry]) -> None:
        self.collections.upsert(STATE, Points([*pieces], [*pieces.values()]), only_if=Where(missing="log"))

    def _outcomes(self, ids: Sequence[str]) -> Mapping[str, Entry]:
        return self.collections.get(STATE, ids, fields=["outcome"])

    def forget(self, epoch: int, keep_seconds: float) -> None:
        before = now() - int(keep_seconds * 1000)
        over = Where(any_of={"log": [self.name]}, at_most={"epoch": epoch - 1, "at": before})
        self.collections.delete(STATE, over)

    def drop(self) -> None:
        with contextlib.suppress(Missing):
            self.collections.delete(STATE, Where(any_of={"log": [self.name]}))

    def _id(self, *what: str) -> str:
        return str(uuid.uuid5(NAMESPACE, "\0".join((STATE, self.name, *what))))
