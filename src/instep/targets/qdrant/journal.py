"""What was fenced and committed in one index, and what was promoted under one alias: logs in the collection `_instep`.

An entry of a log is a point whose id says its number, and which is never written over: of two writers who add the same
number one finds that it came second, and looks again at what is there. So what is checked before an entry is added
still holds when it is in, on a server too.
"""

from __future__ import annotations

import base64
import contextlib
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from instep.domain.waves import Mark
from instep.errors import Fenced, UserError
from instep.targets.qdrant.collections import Collections, FieldIndex, Missing
from instep.targets.qdrant.points import NAMESPACE, Points, Where

#: No entity has a name that begins so.
STATE = "_instep"
_INDEXES: Final[Mapping[str, FieldIndex]] = {
    "log": "keyword",
    "slices": "keyword",
    "seq": "integer",
    "epoch": "integer",
    "at": "integer",
}

#: Characters of outcomes in one point and in one request, and points in one request.
_PIECE = 4 * 1024 * 1024
_PIECES_AT_ONCE = 1_000
#: Slices in one question, and entries in one answer. (These name the slices of a wave, so they may be long.)
_SLICES_AT_ONCE = 200
_PAGE = 200

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Log:
    """Entries numbered from 0 without a gap; `name` is the index or alias it is of."""

    collections: Collections
    name: str

    def head(self) -> Entry | None:
        """The last entry."""
        entries = Where(any_of={"log": [self.name]}, above={"seq": -1})
        try:
            return self.collections.last(STATE, entries, "seq")
        except Missing:
            return None
        except UserError:
            # Somebody is just creating it: without its indexes it cannot answer.
            self.collections.create(STATE, 0, _INDEXES)
            return self.collections.last(STATE, entries, "seq")

    def add(self, seq: int, **said: Any) -> bool:
        """Whether it is in under this number: False when another one is."""
        token = uuid.uuid4().hex
        id = self._id(f"{seq:d}")
        entry = {"log": self.name, "seq": seq, "token": token, "at": _now(), **said}
        try:
            self.collections.upsert(STATE, Points([id], [entry]), only_if=Where(missing="seq"))
        except Missing:
            self.collections.create(STATE, 0, _INDEXES)
            return self.add(seq, **said)
        return bool(self.collections.get(STATE, [id], fields=["token"])[id]["token"] == token)

    def settle(self) -> None:
        """Where that is for Instep to say: not at every entry. What a crash of the machine takes of a log are fences
        against writers that it has ended too, and outcomes of slices that are then run again.
        """
        self.collections.settle(STATE)

    def entry(self, seq: int) -> Entry | None:
        id = self._id(f"{seq:d}")
        return self.collections.get(STATE, [id], fields=["epoch", "entry"]).get(id)

    def entries(self, *, since: int, slice_ids: Sequence[str] | None = None) -> Iterator[Entry]:
        """Those after number `since`, of these slices or all; in no order."""
        if slice_ids is None:
            yield from self._pages(Where(any_of={"log": [self.name]}, above={"seq": since}))
            return
        for at in range(0, len(slice_ids), _SLICES_AT_ONCE):
            some = slice_ids[at : at + _SLICES_AT_ONCE]
            yield from self._pages(Where(any_of={"log": [self.name], "slices": some}, above={"seq": since}))

    def _pages(self, where: Where) -> Iterator[Entry]:
        after = None
        while True:
            page = self.collections.page(
                STATE, where, fields=["seq", "entry", "epoch", "attempt", "marks"], limit=_PAGE, after=after
            )
            yield from page.payloads
            after = page.next
            if after is None:
                return

    def keep(self, attempt: str, marks: Sequence[Mark], epoch: int) -> list[list[Any]]:
        """Store outcomes, which count once an entry names their attempt; returns what it has to say of the marks."""
        said: list[list[Any]] = []
        waiting: dict[str, Entry] = {}
        length = 0
        for mark in marks:
            text = base64.b64encode(mark.outcome).decode()
            pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
            for number, piece in enumerate(pieces):
                if length + len(piece) > _PIECE or len(waiting) == _PIECES_AT_ONCE:
                    self._store(waiting)
                    waiting, length = {}, 0
                id = self._piece(attempt, mark.slice_id, mark.fence, number)
                waiting[id] = {"log": self.name, "epoch": epoch, "at": _now(), "outcome": piece}
                length += len(piece)
            said.append([mark.slice_id, mark.fence, len(pieces)])
        self._store(waiting)
        return said

    def _store(self, pieces: Mapping[str, Entry]) -> None:
        if pieces:
            self.collections.upsert(STATE, Points([*pieces], [*pieces.values()]), only_if=Where(missing="log"))

    def kept(self, attempt: str, slice_id: str, fence: int, pieces: int) -> bytes:
        ids = [self._piece(attempt, slice_id, fence, number) for number in range(pieces)]
        found = self.collections.get(STATE, ids, fields=["outcome"])
        return base64.b64decode("".join(str(found[each]["outcome"]) for each in ids))

    def forget(self, epoch: int, keep_seconds: float) -> None:
        """Drop what was said under epochs before this one, once it is old."""
        before = _now() - int(keep_seconds * 1000)
        over = Where(any_of={"log": [self.name]}, at_most={"epoch": epoch - 1, "at": before})
        self.collections.delete(STATE, over)

    def drop(self) -> None:
        with contextlib.suppress(Missing):
            self.collections.delete(STATE, Where(any_of={"log": [self.name]}))

    def _id(self, *what: str) -> str:
        return str(uuid.uuid5(NAMESPACE, "\0".join((STATE, self.name, *what))))

    def _piece(self, attempt: str, slice_id: str, fence: int, number: int) -> str:
        return self._id(attempt, slice_id, f"{fence:d}", f"{number:d}")


def _now() -> int:
    return int(time.time() * 1000)


@dataclass(frozen=True, slots=True)
class Journal:
    """The log of one physical index. The number of an entry is a version of the index."""

    log: Log

    @classmethod
    def of(cls, collections: Collections, physical: str) -> Journal:
        return cls(Log(collections, physical))

    def begin(self) -> None:
        """Before the index is there: should it never be complete, it can still be told how long that is ago."""
        self.log.add(0, entry="begun", epoch=0)

    def made(self) -> None:
        self.log.add(1, entry="made", epoch=0)

    @property
    def complete(self) -> bool:
        head = self.log.head()
        return head is not None and head["seq"] > 0

    def idle(self) -> float:
        """Seconds since something was said; without end if nothing ever was."""
        head = self.log.head()
        return float("inf") if head is None else (_now() - int(head["at"])) / 1000

    def epoch(self, version: int) -> int:
        """The one that made this version."""
        entry = self.log.entry(version)
        if entry is None:
            raise Fenced(f"{self.log.name}: version {version} is no longer known")
        return int(entry["epoch"])

    def demand(self, epoch: int, head: Entry | None = None) -> Entry:
        """The last entry. Raises `Fenced` when it is of a newer epoch."""
        head = head or self.log.head()
        if head is None:
            raise UserError(
                f"there is no index {self.log.name!r}",
                where=self.log.collections.shown,
                hint="Build it with: instep run",
            )
        if head["epoch"] > epoch:
            raise Fenced(f"{self.log.name}: epoch {epoch} was superseded by epoch {head['epoch']}")
        return head

    def fence(self, epoch: int, marks: Sequence[Mark]) -> int:
        """See `DocumentTarget.fence`."""
        slices, said = _slices(marks), [[mark.slice_id, mark.fence, 0] for mark in marks]
        while True:
            # What is looked at after the last entry was read is still so if another one can be added to it.
            seq = self.demand(epoch)["seq"] + 1
            _refuse(self.log.entries(since=-1, slice_ids=slices), marks)
            if self.log.add(seq, entry="fence", epoch=epoch, marks=said, slices=slices):
                return int(seq)

    def commit(self, base: int, epoch: int, attempt: str, marks: Sequence[Mark]) -> int:
        """See `DocumentTarget.commit`."""
        while True:
            head = self.log.head()
            since = list(self.log.entries(since=base))
            for entry in since:
                if entry["entry"] == "commit" and entry["attempt"] == attempt:
                    return int(entry["seq"])
            seq = self.demand(epoch, head)["seq"] + 1
            _refuse(since, marks)
            said = self.log.keep(attempt, marks, epoch)
            if self.log.add(seq, entry="commit", epoch=epoch, attempt=attempt, marks=said, slices=_slices(marks)):
                return int(seq)

    def committed(self, since: int, slice_ids: Iterable[str]) -> dict[str, bytes]:
        """See `DocumentTarget.committed`. Of several commits of a slice that with the highest fence counts."""
        wanted = set(slice_ids)
        best: dict[str, tuple[int, int, str, int]] = {}
        for entry in self.log.entries(since=since, slice_ids=sorted(wanted)):
            if entry["entry"] == "commit":
                for slice_id, fence, pieces in entry["marks"]:
                    this = (fence, entry["seq"], entry["attempt"], pieces)
                    if slice_id in wanted and this > best.get(slice_id, (-1, -1, "", 0)):
                        best[slice_id] = this
        return {
            slice_id: self.log.kept(attempt, slice_id, fence, pieces)
            for slice_id, (fence, _, attempt, pieces) in best.items()
        }

    def forget(self, keep_seconds: float) -> None:
        head = self.log.head()
        if head is not None:
            self.log.forget(head["epoch"], keep_seconds)
            self.log.settle()


def _slices(marks: Sequence[Mark]) -> list[str]:
    return sorted({mark.slice_id for mark in marks})


def _refuse(entries: Iterable[Entry], marks: Sequence[Mark]) -> None:
    """Raises `Fenced` when one of the marks is of an older fence than an entry's of the same slice."""
    own: dict[str, int] = {}
    for mark in marks:
        own[mark.slice_id] = max(mark.fence, own.get(mark.slice_id, mark.fence))
    for entry in entries:
        for slice_id, fence, _ in entry.get("marks") or ():
            if fence > own.get(slice_id, fence):
                raise Fenced(f"slice {slice_id}: fence {own[slice_id]} was superseded by {fence}")
