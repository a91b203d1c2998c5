"""Base of both PostgreSQL targets: fences, commits, aliases and upkeep of indexes in a schema of a database."""

from __future__ import annotations

import contextlib
import math
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeVar

from instep.domain.waves import Mark
from instep.postgres.location import Location
from instep.targets.ownership import NO_OWNER, OwnedIndexes, Owner

if TYPE_CHECKING:
    from instep.postgres.connection import Session
    from instep.targets.postgres.aliases import View
    from instep.targets.postgres.registry import Index, Record

#: After this share of the time for which they are kept, records and staged rows are looked for again.
_FORGET_AGAIN: Final = 1 / 60

AnyIndex = TypeVar("AnyIndex", bound="Index")


@dataclass(frozen=True)
class PostgresIndexes(OwnedIndexes, Generic[AnyIndex]):
    """Indexes in a schema of a PostgreSQL database (`postgresql://user:password@host/database`).

    `keep_seconds` is how long staged rows without a commit stay, and records of old epochs.
    """

    uri: str = field(repr=False)
    schema: str = "public"
    keep_seconds: float = 3600.0
    owner: Owner = field(default=NO_OWNER, kw_only=True)

    kind: Literal["transactional"] = field(default="transactional", init=False)

    def __post_init__(self) -> None:
        self.place.demand_understood()

    @property
    def place(self) -> Location:
        return Location(self.uri, self.schema)

    @property
    def shown(self) -> str:
        """The address without secrets."""
        return self.place.shown

    def owner_of(self, name: str) -> str | None:
        from instep.targets.postgres.registry import fitting, owner_of_alias, owner_of_index

        fitting(name)
        with self.place.session() as session:
            found = owner_of_index(session, name)
            return owner_of_alias(session, name) if found is None else found

    def claim(self, name: str, *, of: str) -> None:
        from instep.targets.postgres.registry import claim, fitting

        fitting(name)
        with self.place.session() as session:
            claim(session, name, partial(self.claimed, name, of))

    def served(self, alias: str) -> str | None:
        from instep.targets.postgres import aliases
        from instep.targets.postgres.registry import fitting

        fitting(alias)
        with self.place.session() as session:
            return aliases.served(session, alias)

    def shows(self, alias: str) -> bool:
        from instep.targets.postgres import aliases
        from instep.targets.postgres.registry import fitting

        fitting(alias)
        with self.place.session() as session:
            return aliases.shows(session, alias)

    @abstractmethod
    def _index_of(self, session: Session, physical: str, record: Record) -> AnyIndex:
        """The index that is recorded. Raises `UserError` if it is of the other kind."""

    @abstractmethod
    def _views(self, session: Session, index: AnyIndex) -> list[View]:
        """The views in which readers find it."""

    @abstractmethod
    def _move(
        self, session: Session, index: AnyIndex, staged: Sequence[bytes], *, attempt: str, base: int
    ) -> list[str]:
        """Put in what was staged. Returns the tables of staged rows that are not needed once this is committed."""

    @abstractmethod
    def _tend(self, session: Session, index: AnyIndex, *, full: bool) -> None:
        """Bring statistics and indexes up to date."""

    @property
    def _partition(self) -> str:
        """The scope of the epochs, where several partitions share an index."""
        return ""

    @contextlib.contextmanager
    def _index(self, physical: str) -> Iterator[tuple[Session, AnyIndex]]:
        from instep.targets.postgres import registry

        registry.fitting(physical)
        with self.place.session() as session:
            yield session, self._index_of(session, physical, registry.known(session, physical))

    def fence(self, physical: str, epoch: int, marks: Sequence[Mark] = ()) -> int:
        from instep.targets.postgres.journal import Journal

        with self._index(physical) as (session, index):
            return Journal(session, index).fence(self._partition, epoch, marks, partial(self.taken, physical))

    def epoch(self, physical: str) -> int:
        from instep.targets.postgres.journal import Journal

        with self._index(physical) as (session, index):
            return Journal(session, index).epoch(self._partition)

    def commit(
        self, physical: str, *, base: int, epoch: int, attempt: str, staged: Sequence[bytes], marks: Sequence[Mark]
    ) -> int:
        from instep.targets.postgres import journal

        with self._index(physical) as (session, index):
            return journal.commit(
                session,
                index,
                lambda: self._move(session, index, staged, attempt=attempt, base=base),
                base=base,
                epoch=epoch,
                attempt=attempt,
                marks=marks,
                scope=self._partition,
            )

    def committed(self, physical: str, since: int, slice_ids: Iterable[str]) -> Mapping[str, bytes]:
        from instep.targets.postgres.journal import Journal

        with self._index(physical) as (session, index):
            return Journal(session, index).committed(since, slice_ids)

    def maintain(self, physical: str, *, full: bool = False) -> None:
        from instep.targets.postgres import staging
        from instep.targets.postgres.journal import Journal

        self.demand(physical)
        with self._index(physical) as (session, index):
            key, now = ("forgotten", self.schema, physical), time.monotonic()
            # Not after each of the jobs on a topic: it looks at all that these have left.
            if full or now - session.memory.get(key, -math.inf) >= self.keep_seconds * _FORGET_AGAIN:
                staging.sweep(session, self.keep_seconds)
                Journal(session, index).forget(self.keep_seconds)
                session.memory[key] = now
            self._tend(session, index, full=full)

    def promote(self, alias: str, physical: str | None, epoch: int) -> None:
        from instep.targets.postgres import aliases, registry

        registry.fitting(alias)
        if physical is not None:
            self.demand(physical)
        with self.place.session() as session:
            views = []
            if physical is not None:
                found = registry.known(session, registry.fitting(physical))
                views = self._views(session, self._index_of(session, physical, found))
            taken = partial(self.taken, alias)
            aliases.promote(session, alias, physical, views, taken, epoch=epoch, scope=self._partition)

    def drop(self, physical: str) -> None:
        from instep.targets.postgres import registry, staging

        self.demand(registry.fitting(physical))
        with self.place.session() as session:
            found = registry.find(session, physical)
            if found is not None:
                index = self._index_of(session, physical, found)
                staging.remove(session, staging.of_index(session, index.id))
                registry.drop(session, index.id, index.tables)

    def _indexes(self, prefix: str) -> list[str]:
        from instep.postgres.connection import Missing
        from instep.targets.postgres import registry

        with self.place.session() as session, contextlib.suppress(Missing):
            return registry.named(session, prefix)
        return []

    def _idle(self, physical: str) -> float:
        from instep.targets.postgres import registry

        with self.place.session() as session:
            return registry.idle(session, physical)
