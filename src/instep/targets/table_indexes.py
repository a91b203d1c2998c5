"""Base of the targets for tables: what Lance, ClickHouse and PostgreSQL do alike."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, cast

from instep.errors import UserError
from instep.targets.ownership import OwnedIndexes, checked_name
from instep.targets.table_target import OWN, Drift, TableSpec, Unfit, checked_specs, spec_of, version_columns

if TYPE_CHECKING:
    import pyarrow as pa


class TableIndexes(OwnedIndexes):
    """They are dataclasses with a field `scope`, too."""

    scope: str

    @abstractmethod
    def specs(self, physical: str) -> Sequence[TableSpec]: ...

    @abstractmethod
    def drift(self, physical: str, specs: Sequence[TableSpec]) -> Sequence[Drift]: ...

    @abstractmethod
    def read(
        self,
        physical: str,
        kind: str = OWN,
        *,
        where: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table: ...

    def versions(self, physical: str) -> Iterator[pa.RecordBatch]:
        yield from self.read(physical, columns=version_columns(spec_of(self.specs(physical), OWN))).to_batches()

    @abstractmethod
    def _make(self, physical: str, specs: Sequence[TableSpec]) -> None:
        """Make the tables that are not there yet."""

    @abstractmethod
    def _delete(self, physical: str, epoch: int, *, prefix: str, but: str | None) -> None:
        """Delete the rows of namespaces below `prefix` (all if it is empty), but not those of instance `but`."""

    def within(self, scope: str) -> Self:
        return cast("Self", replace(cast("Any", self), scope=scope))

    def create(self, physical: str, specs: Sequence[TableSpec]) -> None:
        specs = checked_specs(specs)
        checked_name(physical)
        self.demand(physical)
        self._make(physical, specs)
        self.demand(physical)
        if differing := self.drift(physical, specs):
            raise UserError(
                f"index {physical!r} is there and differs: {differing[0]}",
                where=self.shown,
                hint="Build a new one: instep run --full-refresh",
            )

    def unfit(self, spec: TableSpec, rows: pa.RecordBatch) -> Iterable[Unfit]:
        """Nothing: all values of our types are held."""
        return ()

    def refinable(self, physical: str) -> bool:
        """Never: tables are not searched."""
        return False

    def refine(self, physical: str) -> None:
        """Nothing: see `refinable`."""

    def row(self, physical: str, key: Sequence[Any], kind: str = OWN) -> Mapping[str, Any] | None:
        where = dict(zip(spec_of(self.specs(physical), kind).key, key, strict=True))
        found = self.read(physical, kind, where=where).to_pylist()
        return found[0] if found else None

    def sweep(self, physical: str, instance: str, *, epoch: int, prefix: str = "") -> None:
        self._delete(physical, epoch, prefix=prefix, but=instance)

    def delete_scope(self, physical: str, prefix: str, *, epoch: int) -> None:
        if not prefix:
            raise UserError("no namespace was named", hint="Name a traversal path, such as 42/9970/")
        self._delete(physical, epoch, prefix=prefix, but=None)


def drifted(
    specs: Sequence[TableSpec],
    stored: Iterable[TableSpec],
    expected: Callable[[TableSpec], Mapping[str, str]],
    found: Callable[[TableSpec], Mapping[str, str]],
) -> list[Drift]:
    """The differences of tables from their specs, given types of columns by name as they should be, and as they are:
    none of a table that is not there.
    """
    before = {each.kind: each for each in stored}
    drift: list[Drift] = []
    for spec in checked_specs(specs):
        there = before.pop(spec.kind, None)
        columns = found(spec) if there is not None else {}
        if there is None or not columns:
            drift.append(Drift(spec.kind, "", "there", ""))
            continue
        wanted = expected(spec)
        drift += [
            Drift(spec.kind, name, wanted.get(name, ""), columns.get(name, ""))
            for name in dict.fromkeys([*wanted, *columns])
            if wanted.get(name) != columns.get(name)
        ]
        if there.key != spec.key:
            keys = (f"keyed by {', '.join(each.key)}" for each in (spec, there))
            drift.append(Drift(spec.kind, "", *keys))
    return drift + [Drift(kind, "", "", "there") for kind in before]
