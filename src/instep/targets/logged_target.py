"""Base of targets that keep logs: OpenSearch and Qdrant. Rows are in once they are staged; the log of an index
(`instep.targets.journal`) says what counts, and the log of an alias which index is served.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from instep.domain.document_columns import DocumentColumn
from instep.domain.waves import Mark
from instep.errors import UserError
from instep.targets.journal import Journal, Log, claimed, decided, owner_in
from instep.targets.ownership import OwnedIndexes, checked_name
from instep.targets.widths import Widths

#: Records of old epochs stay so long.
KEEP_SECONDS = 3600.0


class Store(Protocol):
    """The server, or the folder, that holds the indexes."""

    @property
    def shown(self) -> str: ...

    def check(self) -> None: ...

    def names(self) -> list[str]: ...

    def count(self, name: str) -> int: ...

    def drop(self, name: str) -> None: ...


class LoggedTarget(OwnedIndexes):
    @property
    @abstractmethod
    def _store(self) -> Store: ...

    @abstractmethod
    def _log(self, name: str) -> Log:
        """The log of this name: of an index, or of an alias in the form of `_alias_log`."""

    @abstractmethod
    def _made(self, physical: str) -> bool:
        """Whether the store has the index, complete or not."""

    @abstractmethod
    def _tidy(self, physical: str, full: bool) -> None: ...

    @abstractmethod
    def _demand_index(self, physical: str) -> None:
        """Check that there is such an index. Raises `UserError` if not."""

    @abstractmethod
    def _pointed(self, alias: str) -> Sequence[str | None]:
        """The indexes to which the store's own alias leads: None for one whose name is not one of Instep's."""

    @abstractmethod
    def _show(self, alias: str, log: Log) -> None:
        """Bring the store's own alias, which readers use, to what the log says. Of several writers that do so at once,
        the last one to look sees it all.
        """

    def _is_index(self, alias: str) -> bool:
        return alias in self._store.names()

    def _alias_log(self, alias: str) -> Log:
        """The log of an alias. Those of indexes have names of another form."""
        return self._log(f"alias {alias}")

    def _journal(self, physical: str) -> Journal:
        return Journal(self._log(checked_name(physical)))

    @property
    def shown(self) -> str:
        return self._store.shown

    def owner_of(self, name: str) -> str | None:
        if (head := self._journal(name).log.head()) is not None:
            return owner_in(head)
        if (head := self._alias_log(name).head()) is not None:
            return owner_in(head) or (self.owner_of(head["physical"]) if head["physical"] else None)
        return "" if self._made(name) or self._pointed(name) else None

    def claim(self, name: str, *, of: str) -> None:
        owned = partial(self.claimed, name, of)
        found = self.owner_of(name)
        if found is None:
            raise UserError(f"there is no {name!r} to be claimed", where=self.shown)
        log, pointed = self._alias_log(name), self._pointed(name)
        if log.head() is None and not pointed:
            self._journal(name).claim(owned)
        else:
            ours = [each for each in pointed if each is not None]
            claimed(log, lambda: owned(self.owner_of(name) or ""), physical=ours[0] if len(ours) == 1 else None)

    def check(self) -> None:
        self._store.check()

    def _create(self, physical: str, make: Callable[[], None]) -> None:
        """The log first: of what is never complete it says whose it is."""
        self.demand(physical)
        journal = self._journal(physical)
        journal.begin(self.owner.id)
        make()
        journal.made()
        self.demand(physical)

    def exists(self, physical: str) -> bool:
        checked_name(physical)
        return self._made(physical) and self._journal(physical).complete

    def fence(self, physical: str, epoch: int, marks: Sequence[Mark] = ()) -> int:
        return self._journal(physical).fence(epoch, marks, partial(self.taken, physical))

    def epoch(self, physical: str) -> int:
        return self._journal(physical).newest

    def commit(
        self, physical: str, *, base: int, epoch: int, attempt: str, staged: Sequence[bytes], marks: Sequence[Mark]
    ) -> int:
        """The rows are in since they were staged."""
        return self._journal(physical).commit(base, epoch, attempt, marks)

    def committed(self, physical: str, since: int, slice_ids: Iterable[str]) -> Mapping[str, bytes]:
        return self._journal(physical).committed(since, slice_ids)

    def maintain(self, physical: str, *, full: bool = False) -> None:
        self.demand(physical)
        self._tidy(checked_name(physical), full)
        self._journal(physical).forget(KEEP_SECONDS)

    def promote(self, alias: str, physical: str | None, epoch: int) -> None:
        """See `IndexTarget.promote`, and `decided`."""
        checked_name(alias)
        if physical is not None:
            self._demand_index(checked_name(physical))
            self.demand(physical)
        if self._is_index(alias):
            raise UserError(f"{alias!r} is an index, so it cannot be an alias", where=self.shown)
        log = self._alias_log(alias)
        decided(log, alias, physical, epoch, partial(self._promotable, alias, physical, epoch))
        self._show(alias, log)

    def _promotable(self, alias: str, physical: str | None, epoch: int) -> str:
        """The owner of the alias after its promotion, or an error that says why not."""
        return self.demand(alias)

    def served(self, alias: str) -> str | None:
        head = self._alias_log(checked_name(alias)).head()
        return None if head is None else head["physical"]

    def shows(self, alias: str) -> bool:
        return bool(self._pointed(checked_name(alias)))

    def _indexes(self, prefix: str) -> list[str]:
        return sorted(each for each in self._store.names() if each.startswith(prefix))

    def _idle(self, physical: str) -> float:
        return self._journal(physical).idle()

    def drop(self, physical: str) -> None:
        """Drop an index, and its log last: after a crash it still names the owner."""
        self.demand(physical)
        journal = self._journal(physical)
        journal.going()
        self._remove(physical)
        journal.log.drop()

    def _remove(self, physical: str) -> None:
        self._store.drop(physical)


class LoggedDocuments(Widths, LoggedTarget):
    @abstractmethod
    def _make(self, physical: str, dimensions: int, columns: Sequence[DocumentColumn]) -> None:
        """Make the index unless it is there. Raises `UserError` when it is there in another form."""

    def create(self, physical: str, dimensions: int, buckets: int, columns: Sequence[DocumentColumn] = ()) -> None:
        """`buckets` say nothing here: rows are found by their document_id."""
        checked_name(physical)
        if dimensions < 1:
            raise UserError(f"an index needs at least one dimension, not {dimensions}")
        self._create(physical, partial(self._make, physical, dimensions, columns))

    def _remove(self, physical: str) -> None:
        self._forget_width(physical)
        super()._remove(physical)

    def rows(self, physical: str) -> int:
        return self._store.count(checked_name(physical))
