"""Journal of the fences and commits of an index and the promotions of an alias, on targets without transactions:
logs whose entries are never written over.

Of two writers who add the same number one finds that it came second, and looks again at what is there. So what is
checked before an entry is added still holds when it is in.
"""

from __future__ import annotations

import base64
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from instep.domain.waves import Mark
from instep.errors import Conflict, Fenced, UserError

Entry = Mapping[str, Any]

#: From the owner of an index or an alias (empty: none) to its next owner. Raises `NotOurs` if it may not be that.
Owned: TypeAlias = Callable[[str], str]

#: Characters of a piece and of one request, and pieces in one request. Whole groups of four characters: each piece is
#: base64 by itself.
_PIECE = 4 * 1024 * 1024
_AT_ONCE = 1_000


class Log(ABC):
    """Entries numbered from 0 without a gap; `name` is the index or alias it is of. Of outcomes, which may be large,
    there are pieces beside them.
    """

    name: str

    @property
    @abstractmethod
    def shown(self) -> str:
        """The place of the log, without secrets."""

    @abstractmethod
    def head(self) -> Entry | None:
        """The last entry."""

    @property
    def tags(self) -> Mapping[str, str]:
        """The part of all that is added that names its partition, of several that share the log."""
        return {}

    def own(self, head: Entry | None) -> Entry | None:
        """The last entry of the own partition, the one whose epochs count here, after that of all was read."""
        return head

    @abstractmethod
    def add(self, seq: int, **said: Any) -> bool:
        """Whether it is in under this number: False when another one is."""

    @abstractmethod
    def sync(self) -> None:
        """Make added entries survive a loss of power."""

    @abstractmethod
    def entry(self, seq: int) -> Entry | None: ...

    @abstractmethod
    def entries(self, *, since: int, slice_ids: Sequence[str] | None = None) -> Iterator[Entry]:
        """Read the entries after number `since`, of these slices or all; in no order."""

    @abstractmethod
    def forget(self, epoch: int, keep_seconds: float) -> None:
        """Drop what was said under epochs before this one, once it is old."""

    @abstractmethod
    def drop(self) -> None: ...

    @abstractmethod
    def _id(self, *what: str) -> str:
        """The id of an entry (its number), or of a piece of an outcome, in the store."""

    @abstractmethod
    def _store(self, pieces: Mapping[str, Entry]) -> None:
        """Add pieces by their ids: those that are in already stay."""

    @abstractmethod
    def _outcomes(self, ids: Sequence[str]) -> Mapping[str, Entry]:
        """The `outcome` of these pieces."""

    def keep(self, attempt: str, marks: Sequence[Mark], epoch: int) -> list[list[Any]]:
        """Store outcomes, which count once an entry names their attempt; returns what it has to say of the marks:
        slice, fence and number of pieces.
        """
        said: list[list[Any]] = []
        waiting: dict[str, Entry] = {}
        length = 0
        for mark in marks:
            text = base64.b64encode(mark.outcome).decode()
            pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
            for number, piece in enumerate(pieces):
                if length + len(piece) > _PIECE or len(waiting) == _AT_ONCE:
                    self._store(waiting)
                    waiting, length = {}, 0
                id = self._piece(attempt, mark.slice_id, mark.fence, number)
                waiting[id] = {"log": self.name, "epoch": epoch, "at": now(), "outcome": piece, **self.tags}
                length += len(piece)
            said.append([mark.slice_id, mark.fence, len(pieces)])
        if waiting:
            self._store(waiting)
        return said

    def kept(self, attempt: str, slice_id: str, fence: int, count: int) -> bytes:
        """An outcome, of so many pieces."""
        ids = [self._piece(attempt, slice_id, fence, number) for number in range(count)]
        found = self._outcomes(ids)
        return b"".join(base64.b64decode(found[each]["outcome"]) for each in ids)

    def _piece(self, attempt: str, slice_id: str, fence: int, number: int) -> str:
        return self._id(attempt, slice_id, f"{fence:d}", f"{number:d}")


def now() -> int:
    """Milliseconds, as entries say when they were made."""
    return int(time.time() * 1000)


def owner_in(head: Entry) -> str:
    """The owner of an index or an alias, by the last entry of its log: each entry names it."""
    return str(head.get("owner") or "")


def decided(log: Log, alias: str, physical: str | None, epoch: int, owned: Callable[[], str]) -> None:
    """The log of an alias says that this epoch serves that index. See `IndexTarget.promote`. `owned` looks whose the
    alias is, and says whose it will be, or raises `NotOurs`.
    """
    while True:
        head = log.head()
        own = log.own(head)
        owner = owned()
        if own is not None and own["epoch"] > epoch:
            raise Fenced(f"alias {alias!r}: epoch {epoch} was superseded by epoch {own['epoch']}")
        if own is not None and own["epoch"] == epoch:
            if own["physical"] != physical:
                serves = f"epoch {epoch} serves {own['physical']}"
                raise Conflict(f"alias {alias!r}: {serves}, so it cannot serve {physical}")
            if owner_in(own) == owner:
                return
        if log.add(_next(head), entry="promoted", epoch=epoch, physical=physical, **_said(owner)):
            log.sync()
            return


def claimed(log: Log, owned: Callable[[], str], *, physical: str | None = None) -> None:
    """The log of an alias says whose it is from now on; it serves the same, or `physical` where nothing was said."""
    while True:
        head = log.head()
        owner = owned()
        if head is not None and owner_in(head) == owner:
            return
        own = log.own(head)
        serves = head["physical"] if head else physical
        if log.add(_next(head), entry="claimed", epoch=own["epoch"] if own else 0, physical=serves, **_said(owner)):
            log.sync()
            return


def _next(head: Entry | None) -> int:
    return int(head["seq"]) + 1 if head else 0


def _said(owner: str) -> dict[str, str]:
    return {"owner": owner} if owner else {}


#: What the last entry of an index says that is not there yet, or is not to be there any more.
_BEGUN, _GOING = "begun", "going"


@dataclass(frozen=True, slots=True)
class Journal:
    """The log of one physical index. The number of an entry is a version of the index. Partitions that share an index
    share its log, and have epochs of their own.
    """

    log: Log

    def begin(self, owner: str) -> None:
        """Before the index is there: should it never be complete, it can still be told how long that is ago, and whose
        it is.
        """
        self.log.add(0, entry=_BEGUN, epoch=0, **_said(owner))

    def made(self) -> None:
        head = self.log.head()
        if head is not None and head["entry"] == _BEGUN:
            self.log.add(_next(head), entry="made", epoch=0, **_said(owner_in(head)))

    @property
    def complete(self) -> bool:
        head = self.log.head()
        return head is not None and head["entry"] not in (_BEGUN, _GOING)

    def idle(self) -> float:
        """Seconds since something was said; without end if nothing ever was, or if it was to be dropped."""
        head = self.log.head()
        if head is None or head["entry"] == _GOING:
            return float("inf")
        return (now() - int(head["at"])) / 1000

    def going(self) -> None:
        """Before the index is dropped: what is left of it is swept, however young it is, by whose it was."""
        while (head := self.log.head()) is not None and head["entry"] != _GOING:
            if self.log.add(_next(head), entry=_GOING, epoch=self._newest(head), **_said(owner_in(head))):
                return

    def claim(self, owned: Owned) -> None:
        """Say whose the index is from now on: all else stays."""
        while True:
            head = self.log.head()
            owner = owned(owner_in(head) if head else "")
            if head is not None and owner_in(head) == owner:
                return
            entry = _BEGUN if head is None or head["entry"] == _BEGUN else "claimed"
            if self.log.add(_next(head), entry=entry, epoch=self._newest(head), **_said(owner)):
                self.log.sync()
                return

    def epoch(self, version: int) -> int:
        """The one that made this version."""
        entry = self.log.entry(version)
        if entry is None:
            raise Fenced(f"{self.log.name}: version {version} is no longer known")
        return int(entry["epoch"])

    @property
    def newest(self) -> int:
        """The newest epoch that was seen; 0 if none."""
        return self._newest(self.log.head())

    def _newest(self, head: Entry | None) -> int:
        own = self.log.own(head)
        return int(own["epoch"]) if own is not None else 0

    def demand(self, epoch: int, head: Entry | None = None) -> Entry:
        """The last entry. Raises `Fenced` when it is of a newer epoch."""
        head = head or self.log.head()
        if head is None:
            raise UserError(
                f"there is no index {self.log.name!r}",
                where=self.log.shown,
                hint="Build it with: instep run",
            )
        # What is added after `head` was read is found when the next entry is added behind it.
        refuse_epoch(self.log.name, epoch, self._newest(head))
        return head

    def demand_current(self, epoch: int) -> None:
        """Stop a writer whose epoch is over before it changes anything that a newer one would not notice: what it
        removes, say.
        """
        head = self.log.head()
        if head is None or self._newest(head) > epoch:
            raise Fenced(f"{self.log.name}: epoch {epoch} is over")

    def fence(self, epoch: int, marks: Sequence[Mark], owned: Owned) -> int:
        """See `IndexTarget.fence`."""
        slices, said = _slices(marks), [[mark.slice_id, mark.fence, 0] for mark in marks]
        while True:
            # What is looked at after the last entry was read is still so if another one can be added to it.
            head = self.log.head()
            owner = owned(owner_in(head)) if head else ""
            seq = _next(self.demand(epoch, head))
            refuse_fences(marks, _fences(self.log.entries(since=-1, slice_ids=slices)))
            if self.log.add(seq, entry="fence", epoch=epoch, marks=said, slices=slices, **_said(owner)):
                return seq

    def commit(self, base: int, epoch: int, attempt: str, marks: Sequence[Mark]) -> int:
        """See `DocumentTarget.commit`."""
        while True:
            head = self.log.head()
            since = list(self.log.entries(since=base))
            for entry in since:
                if entry["entry"] == "commit" and entry["attempt"] == attempt:
                    return int(entry["seq"])
            head = self.demand(epoch, head)
            seq = _next(head)
            refuse_fences(marks, _fences(since))
            kept = self.log.keep(attempt, marks, epoch)
            said = {"marks": kept, "slices": _slices(marks), **_said(owner_in(head))}
            if self.log.add(seq, entry="commit", epoch=epoch, attempt=attempt, **said):
                return seq

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
            self.log.forget(self._newest(head), keep_seconds)
            self.log.sync()


def _slices(marks: Sequence[Mark]) -> list[str]:
    return sorted({mark.slice_id for mark in marks})


def _fences(entries: Iterable[Entry]) -> dict[str, int]:
    """The newest fence of each slice."""
    found: dict[str, int] = {}
    for entry in entries:
        for slice_id, fence, _ in entry.get("marks") or ():
            found[slice_id] = max(fence, found.get(slice_id, fence))
    return found


def refuse_epoch(name: str, epoch: int, newest: int) -> None:
    """Raises `Fenced` when a newer epoch was seen of this index."""
    if newest > epoch:
        raise Fenced(f"{name}: epoch {epoch} was superseded by epoch {newest}")


def refuse_fences(marks: Iterable[Mark], newest: Mapping[str, int]) -> None:
    """Raises `Fenced` when a newer fence of a slice was seen. Of several marks of a slice the highest fence counts."""
    own = {mark.slice_id: mark.fence for mark in sorted(marks, key=lambda mark: mark.fence)}
    for slice_id, fence in own.items():
        if newest.get(slice_id, fence) > fence:
            raise Fenced(f"slice {slice_id}: fence {fence} was superseded by {newest[slice_id]}")
