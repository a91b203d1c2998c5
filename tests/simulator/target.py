"""A target as weak as the contract allows: what is not fenced here really makes duplicates.

Like Lance it refuses a commit by what other commits said *since its base*, reads at a version, keeps
older versions readable, and lets a commit land only on the version that it was made for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from instep.domain.document_columns import DocumentColumn
from instep.domain.waves import Mark
from instep.errors import Conflict, Fenced, UserError
from instep.targets.ownership import NO_OWNER, OwnedIndexes, Owner

from .documents import Rows


class Row(NamedTuple):
    document_id: str
    place: int
    text: str


class Change(NamedTuple):
    """What a task staged for one slice: rows to add, locators to remove."""

    rows: Sequence[Row]
    stale: Sequence[int]


class Note(NamedTuple):
    """What one version says about itself. A fence has no attempt."""

    version: int
    epoch: int
    attempt: str | None
    marks: Mapping[str, Mark]


@dataclass(slots=True)
class Index:
    version: int = 1
    epoch: int = 0
    since: int = 0
    written_at: float = 0.0
    next_locator: int = 0
    rows: dict[int, Row] = field(default_factory=dict)
    added: dict[int, int] = field(default_factory=dict)
    removed: dict[int, tuple[int, Row]] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    def after(self, version: int) -> list[Note]:
        return [each for each in self.notes if each.version > version]

    def stored(self) -> Rows:
        return Counter((row.document_id, row.place, row.text) for row in self.rows.values())

    def at(self, base: int, document_ids: Collection[str]) -> list[tuple[int, Row]]:
        live = [(locator, row) for locator, row in self.rows.items() if self.added[locator] <= base]
        gone = [
            (locator, row) for locator, (at, row) in self.removed.items() if self.added[locator] <= base and at > base
        ]
        return [(locator, row) for locator, row in (*live, *gone) if row.document_id in document_ids]


class SimTarget(OwnedIndexes):
    """Implements what the service uses of `targets.document_target.DocumentTarget`, without Arrow. Each method is one
    step.

    `served_by` are all promotions that took effect, as (alias, physical, epoch); `dropped` all drops.
    """

    kind: Literal["transactional"] = "transactional"
    owner = NO_OWNER
    shown = "simulated"

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self.indexes: dict[str, Index] = {}
        self.aliases: dict[str, tuple[int, str | None]] = {}
        self.staged: dict[bytes, Change] = {}
        self.dropped: list[tuple[str, Index]] = []
        self.owners: dict[str, str] = {}

    def owned_by(self, owner: Owner) -> SimTarget:
        """Shares all but the owner."""
        other = copy(self)
        other.owner = owner
        return other

    def owner_of(self, name: str) -> str | None:
        return self.owners.get(name)

    def claim(self, name: str, *, of: str) -> None:
        self.owners[name] = self.claimed(name, of, self.owners[name])

    def check(self) -> None:
        return

    def create(self, physical: str, dimensions: int, buckets: int, columns: Sequence[DocumentColumn] = ()) -> None:
        self.owners[physical] = self.demand(physical)
        self.indexes.setdefault(physical, Index(written_at=self._seconds()))

    def exists(self, physical: str) -> bool:
        return physical in self.indexes

    def fence(self, physical: str, epoch: int, marks: Sequence[Mark] = ()) -> int:
        index = self._index(physical)
        self.demand(physical)
        _refuse_older_epoch(index, epoch)
        if marks:
            _refuse_older_fences(index.after(max(index.since - 1, 0)), marks)
        self._note(index, epoch, None, marks)
        return index.version

    def epoch(self, physical: str) -> int:
        return self._index(physical).epoch

    def existing(self, physical: str, base: int, document_ids: Collection[str]) -> list[tuple[int, Row]]:
        return self._index(physical).at(base, document_ids)

    def stage(self, change: Change) -> bytes:
        key = str(len(self.staged)).encode()
        self.staged[key] = change
        return key

    def commit(
        self, physical: str, *, base: int, epoch: int, attempt: str, staged: Sequence[bytes], marks: Sequence[Mark]
    ) -> int:
        index = self._index(physical)
        notes = index.after(base)
        if any(each.attempt == attempt for each in notes):
            return index.version
        _refuse_older_epoch(index, epoch)
        _refuse_older_fences(notes, marks)
        changes = [self.staged[key] for key in staged]
        stale = [locator for change in changes for locator in change.stale]
        if any(locator not in index.rows for locator in stale):
            raise Conflict("rows moved since the base version")
        self._note(index, epoch, attempt, marks)
        for locator in stale:
            index.removed[locator] = (index.version, index.rows.pop(locator))
        for row in (row for change in changes for row in change.rows):
            index.rows[index.next_locator] = row
            index.added[index.next_locator] = index.version
            index.next_locator += 1
        return index.version

    def committed(self, physical: str, since: int, slice_ids: Iterable[str]) -> Mapping[str, bytes]:
        wanted = set(slice_ids)
        return {
            name: mark.outcome
            for note in self._index(physical).after(since)
            if note.attempt is not None
            for name, mark in note.marks.items()
            if name in wanted
        }

    def maintain(self, physical: str, *, full: bool = False) -> None:
        self._index(physical)

    def refinable(self, physical: str) -> bool:
        self._index(physical)
        return False

    def refine(self, physical: str) -> None:
        self._index(physical)

    def promote(self, alias: str, physical: str | None, epoch: int) -> None:
        if physical is not None:
            self._index(physical)
            self.demand(physical)
        owner = self.demand(alias)
        newest, served = self.aliases.get(alias, (0, None))
        if epoch == newest and physical != served:
            raise Conflict(f"epoch {epoch} serves {served}")
        if epoch >= newest:  # One that comes late is not told.
            self.aliases[alias] = (epoch, physical)
            self.owners[alias] = owner

    def served(self, alias: str) -> str | None:
        return self.aliases[alias][1] if alias in self.aliases else None

    def rows(self, physical: str) -> int:
        return len(self._index(physical).rows)

    def _indexes(self, prefix: str) -> list[str]:
        return sorted(each for each in self.indexes if each.startswith(prefix))

    def _idle(self, physical: str) -> float:
        return self._seconds() - self.indexes[physical].written_at

    def drop(self, physical: str) -> None:
        self.demand(physical)
        self.owners.pop(physical, None)
        index = self.indexes.pop(physical, None)
        if index is not None:
            self.dropped.append((physical, index))

    def version(self, physical: str) -> int | None:
        """The newest version, for a commit that is under way and may only land on this one."""
        index = self.indexes.get(physical)
        return index.version if index else None

    def _note(self, index: Index, epoch: int, attempt: str | None, marks: Sequence[Mark]) -> None:
        index.version += 1
        index.written_at = self._seconds()
        if epoch != index.epoch:
            index.epoch, index.since = epoch, index.version
        index.notes.append(Note(index.version, epoch, attempt, {mark.slice_id: mark for mark in marks}))

    def _index(self, physical: str) -> Index:
        if physical not in self.indexes:
            raise UserError(f"there is no index {physical!r}")
        return self.indexes[physical]


def _refuse_older_epoch(index: Index, epoch: int) -> None:
    if epoch < index.epoch:
        raise Fenced(f"epoch {epoch} was superseded by epoch {index.epoch}")


def _refuse_older_fences(notes: Iterable[Note], marks: Sequence[Mark]) -> None:
    for note in notes:
        for mark in marks:
            if mark.slice_id in note.marks and note.marks[mark.slice_id].fence > mark.fence:
                raise Fenced(f"slice {mark.slice_id}: fence {mark.fence} was superseded")
