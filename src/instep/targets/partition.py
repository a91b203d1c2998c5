"""One partition's view of a table target: what is common to all targets, under the epochs of one scope."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from instep.domain.refs import Scope
from instep.domain.waves import Mark
from instep.targets.ownership import Owner
from instep.targets.table_target import TableTarget


@dataclass(frozen=True, slots=True)
class PartitionTarget:
    """Implements `targets.document_target.IndexTarget` on a target for tables."""

    tables: TableTarget
    scope: Scope

    @property
    def owner(self) -> Owner:
        return self.tables.owner

    def owned_by(self, owner: Owner) -> PartitionTarget:
        return replace(self, tables=self.tables.owned_by(owner))

    def owner_of(self, name: str) -> str | None:
        return self.tables.owner_of(name)

    def mine(self, name: str) -> bool:
        return self.tables.mine(name)

    def claim(self, name: str, *, of: str) -> None:
        self.tables.claim(name, of=of)

    @property
    def kind(self) -> Literal["transactional", "idempotent"]:
        return self.tables.kind

    def check(self) -> None:
        self.tables.check()

    def exists(self, physical: str) -> bool:
        return self.tables.exists(physical)

    def fence(self, physical: str, epoch: int, marks: Sequence[Mark] = ()) -> int:
        return self.tables.fence(physical, epoch, marks, scope=self.scope.path)

    def commit(
        self, physical: str, *, base: int, epoch: int, attempt: str, staged: Sequence[bytes], marks: Sequence[Mark]
    ) -> int:
        return self.tables.commit(
            physical, base=base, epoch=epoch, attempt=attempt, staged=staged, marks=marks, scope=self.scope.path
        )

    def committed(self, physical: str, since: int, slice_ids: Iterable[str]) -> Mapping[str, bytes]:
        return self.tables.committed(physical, since, slice_ids)

    def maintain(self, physical: str, *, full: bool = False) -> None:
        self.tables.maintain(physical, full=full)

    def refine(self, physical: str, begin: Callable[[], None]) -> None:
        """Nothing: tables are not searched."""

    def promote(self, alias: str, physical: str | None, epoch: int) -> None:
        self.tables.promote(alias, physical, epoch, scope=self.scope.path)

    def served(self, alias: str) -> str | None:
        return self.tables.served(alias)

    def rows(self, physical: str) -> int:
        return self.tables.rows(physical)

    def leftovers(self, alias: str, *, idle_seconds: float) -> list[str]:
        return self.tables.leftovers(alias, idle_seconds=idle_seconds)

    def drop(self, physical: str) -> None:
        self.tables.drop(physical)
