"""`OpenSearchTables`: the port for tables, method by method; the work is in the modules beside it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from instep.domain.waves import Mark
from instep.errors import Fenced, UserError
from instep.targets.journal import now
from instep.targets.logged_target import KEEP_SECONDS
from instep.targets.opensearch import row_layout
from instep.targets.opensearch.indexes import Found
from instep.targets.opensearch.layout import PROBE, coded, decoded
from instep.targets.opensearch.log import Log
from instep.targets.opensearch.row_layout import REF, SWEPT, THERE, VERSION, Declared
from instep.targets.opensearch.server import OpenSearchIndexes
from instep.targets.ownership import alias_owns, checked_name
from instep.targets.probe import probe
from instep.targets.table_indexes import TableIndexes, drifted
from instep.targets.table_target import (
    OWN,
    Drift,
    Held,
    TableSpec,
    TableWriter,
    Unfit,
    checked_prefix,
    checked_specs,
    spec_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from instep.targets.opensearch.row_writing import Placing, RowItem

#: Rows of one request, unless a job says otherwise: they are smaller than chunks with vectors.
_MAX_ROWS = 2_000

#: Rows that are swept at once.
_SWEPT_AT_ONCE = 2_000


@dataclass(frozen=True)
class OpenSearchTables(TableIndexes, OpenSearchIndexes):
    """An index for the rows of an entity, and one for each kind of edge. `mapping` is what the project declares of
    fields and analysis, as JSON, and `place` where it does.
    """

    max_rows: int = _MAX_ROWS
    scope: str = field(default="", kw_only=True)
    mapping: str = field(default="{}", kw_only=True)
    place: str | None = field(default=None, kw_only=True)

    def mapped(self, declared: Declared, place: str | None) -> Self:
        return replace(self, mapping=json.dumps(declared, sort_keys=True), place=place)

    @property
    def _declared(self) -> Declared:
        found: Declared = json.loads(self.mapping)
        return found

    def _log(self, name: str) -> Log:
        return Log(self.indexes, name, self.scope)

    # -- being there ---------------------------------------------------------------------------

    def _make(self, physical: str, specs: Sequence[TableSpec]) -> None:
        row_layout.checked(specs, self._declared, self.place)
        self._create(physical, partial(self._make_all, physical, specs))

    def _make_all(self, physical: str, specs: Sequence[TableSpec]) -> None:
        for spec in specs:
            self._make_index(coded(spec.table(physical)), specs, spec)

    def _make_index(self, index: str, specs: Sequence[TableSpec], spec: TableSpec) -> None:
        try:
            self.indexes.create(index, row_layout.index(specs, spec, self._declared))
        except UserError as error:
            if self.mapping == "{}" or not error.what.startswith("the server refused"):
                raise
            raise UserError(f"mapping: {error.what}", where=self.place, hint="Fix it, and run again.") from None

    def try_out(self, specs: Sequence[TableSpec]) -> None:
        """Have the server judge what is declared, by an index that is dropped at once."""
        specs = checked_specs(specs)
        row_layout.checked(specs, self._declared, self.place)
        name = f"{PROBE}{uuid.uuid4().hex}"
        probe(partial(self._make_index, name, specs, specs[0]), partial(self.indexes.drop_index, name))

    def exists(self, physical: str) -> bool:
        """Whether the indexes of all tables are there, which another process may have dropped."""
        if not super().exists(physical):
            return False
        kept = row_layout.stored(self.indexes.mappings(physical) or {})
        others = [each for each in kept[0] if each.kind != OWN] if kept else []
        return all(self._made(each.table(physical)) for each in others)

    def _stored(self, physical: str) -> tuple[tuple[TableSpec, ...], Declared]:
        found = row_layout.stored(self.indexes.mappings(checked_name(physical)) or {})
        if found is None:
            where, hint = self.shown, "Build it with: instep run"
            raise UserError(f"there is no index {physical!r} of rows", where=where, hint=hint)
        return found

    def _demand_index(self, physical: str) -> None:
        self._stored(physical)

    def specs(self, physical: str) -> Sequence[TableSpec]:
        return self._stored(physical)[0]

    def drift(self, physical: str, specs: Sequence[TableSpec]) -> Sequence[Drift]:
        kept = row_layout.stored(self.indexes.mappings(checked_name(physical)) or {})
        stored = {each.kind: each for each in kept[0]} if kept else {}

        def found(spec: TableSpec) -> Mapping[str, str]:
            mappings = self.indexes.mappings(spec.table(physical))
            return row_layout.found(stored[spec.kind], self._declared, spec, mappings) if mappings else {}

        return drifted(specs, stored.values(), lambda spec: row_layout.expected(spec, self._declared), found)

    def unfit(self, spec: TableSpec, rows: pa.RecordBatch) -> Iterable[Unfit]:
        from instep.targets.opensearch import row_lines

        return row_lines.unfit(spec, rows, row_layout.fields(spec, self._declared))

    def _remove(self, physical: str) -> None:
        for each in self._store.names():
            if each.startswith(f"{physical}__"):
                self._store.drop(each)
        self._store.drop(physical)

    # -- writing -------------------------------------------------------------------------------

    def writer(self, physical: str, base: int) -> TableWriter:
        from instep.targets.opensearch.row_writing import OpenSearchRowWriter

        specs, declared = self._stored(physical)
        return OpenSearchRowWriter(self.indexes, physical, base, specs, declared, self._pace)

    def commit(
        self, physical: str, *, base: int, epoch: int, attempt: str, staged: Sequence[bytes], marks: Sequence[Mark]
    ) -> int:
        """Commit: from now on searches find the rows, and not those that have left."""
        specs, _ = self._stored(physical)
        self._journal(physical).demand(epoch)
        for spec in specs:
            if left := list(self._leaving(physical, spec, staged, base)):
                self._placing(physical, spec).replace(left)
            self.indexes.refresh(coded(spec.table(physical)))
        return super().commit(physical, base=base, epoch=epoch, attempt=attempt, staged=staged, marks=marks)

    def leaving(self, physical: str, staged: Sequence[bytes]) -> int:
        return sum(1 for _ in self._leaving(physical, spec_of(self.specs(physical), OWN), staged, 0))

    def _leaving(self, physical: str, spec: TableSpec, staged: Sequence[bytes], base: int) -> Iterator[RowItem]:
        from instep.targets.opensearch.row_writing import leaving, moves_in

        if moves := [each for each in moves_in(staged) if each.kind == spec.kind]:
            log, index = self._log(physical), coded(spec.table(physical))
            return leaving(self.indexes, index, log, moves, self._below(spec), base=base)
        return iter(())

    def _below(self, spec: TableSpec) -> tuple[str, str] | None:
        """The column of the namespace, and the path of the own one."""
        return (checked_prefix(spec, self.scope), self.scope) if self.scope else None

    def _placing(self, physical: str, spec: TableSpec) -> Placing:
        from instep.targets.opensearch.row_writing import Placing

        return Placing(self.indexes, coded(spec.table(physical)), self._pace)

    def _delete(self, physical: str, epoch: int, *, prefix: str, but: str | None) -> None:
        specs, _ = self._stored(physical)
        columns = {spec.kind: checked_prefix(spec, prefix) if prefix else None for spec in specs}
        base = self.fence(physical, epoch)
        for spec in specs:
            column = columns[spec.kind]
            within = [row_layout.below(column, prefix)] if column else []
            others = row_layout.there(*within, besides=[row_layout.of_instance(but)]) if but else None
            query = others or row_layout.kept(*within)
            self._sweep(physical, spec, query, instance=but or "", base=base)

    def _sweep(self, physical: str, spec: TableSpec, query: Mapping[str, Any], *, instance: str, base: int) -> None:
        """Leave of these rows only that writers of the past are too late."""
        from instep.targets.opensearch.row_writing import Rank, tombstone

        index, placing = coded(spec.table(physical)), self._placing(physical, spec)
        body = {"query": query, "_source": [REF, VERSION], "seq_no_primary_term": True}

        def swept(hit: Mapping[str, Any]) -> RowItem:
            said = hit["_source"]
            rank = Rank(said[REF], said[VERSION], False, base, True)
            there = Found(said, hit["_seq_no"], hit["_primary_term"])
            return tombstone(hit["_id"], rank, instance).over(there)

        clean = False
        while not clean:
            self.indexes.refresh(index)
            clean = True
            for hits in self.indexes.scroll(index, body, _SWEPT_AT_ONCE):
                clean = placing.take_out(map(swept, hits)) and clean
        self.indexes.refresh(index)

    # -- upkeep and serving --------------------------------------------------------------------

    def _tidy(self, physical: str, full: bool) -> None:
        for spec in self.specs(physical):
            name = spec.table(physical)
            self.indexes.serve(name)
            self._purge(physical, spec)
            if full:
                self.indexes.expunge(name)

    def _purge(self, physical: str, spec: TableSpec) -> None:
        """Drop what was swept so long ago that no writer of then is left."""
        from instep.targets.opensearch.row_writing import gone

        index, placing = coded(spec.table(physical)), self._placing(physical, spec)
        before = now() - int(KEEP_SECONDS * 1000)
        body = {"query": {"range": {SWEPT: {"lt": before}}}, "_source": False, "seq_no_primary_term": True}
        for hits in self.indexes.scroll(index, body, _SWEPT_AT_ONCE):
            placing.take_out(gone(each["_id"], Found({}, each["_seq_no"], each["_primary_term"])) for each in hits)

    def _promotable(self, alias: str, physical: str | None, epoch: int) -> str:
        owner = super()._promotable(alias, physical, epoch)
        serves = self.served(alias)
        if serves not in (None, physical) and (newest := self._journal(str(serves)).newest) > epoch:
            raise Fenced(f"alias {alias!r}: epoch {epoch} was superseded by epoch {newest} of what is served")
        return owner

    def _point(self, alias: str, physical: str | None) -> None:
        """Readers find the rows that are there, by the alias; edges by it with their kind behind it."""
        specs = self.specs(physical) if physical is not None else ()
        wanted: dict[str, str | None] = {alias: None}
        wanted |= dict.fromkeys(self._aliases_of_edges(alias))
        if physical is not None:
            wanted |= {each.table(alias): each.table(physical) for each in specs}
        self.indexes.point_all(wanted, THERE)

    def _aliases_of_edges(self, alias: str) -> Iterator[str]:
        for index, name in self.indexes.aliases(f"{alias}__*"):
            kind = name.removeprefix(f"{alias}__")
            physical = (decoded(index) or "").removesuffix(f"__{kind}")
            if alias_owns(alias, physical):
                yield name

    # -- reading -------------------------------------------------------------------------------

    def rows(self, physical: str, kind: str = OWN) -> int:
        return self._count(physical, spec_of(self.specs(physical), kind), THERE)

    def _count(self, physical: str, spec: TableSpec, query: Mapping[str, Any]) -> int:
        return self.indexes.count(spec.table(physical), query)

    def held(self, physical: str, instance: str, *, prefix: str = "") -> Held:
        spec, mine = spec_of(self.specs(physical), OWN), row_layout.of_instance(instance)
        within = [row_layout.below(checked_prefix(spec, prefix), prefix)] if prefix else []
        return Held(
            self._count(physical, spec, row_layout.there(*within, mine)),
            self._count(physical, spec, row_layout.there(*within, besides=[mine])),
        )

    def read(
        self,
        physical: str,
        kind: str = OWN,
        *,
        where: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        from instep.targets.opensearch import row_reading

        specs, declared = self._stored(physical)
        index, spec = coded(spec_of(specs, kind).table(physical)), spec_of(specs, kind)
        return row_reading.read(self.indexes, index, spec, declared, where=where or {}, columns=columns)
