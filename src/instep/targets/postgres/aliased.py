"""Base of both PostgreSQL targets: a schema of a database, in which aliases are views of indexes."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from instep.postgres.location import Location
from instep.targets.ownership import NO_OWNER, OwnedIndexes, Owner


@dataclass(frozen=True)
class AliasedIndexes(OwnedIndexes):
    """The aliases of a schema of a PostgreSQL database (`postgresql://user:password@host/database`).

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
        from instep.targets.postgres import serving
        from instep.targets.postgres.registry import fitting

        fitting(alias)
        with self.place.session() as session:
            return serving.served(session, alias)

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
