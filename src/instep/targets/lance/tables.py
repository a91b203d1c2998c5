"""`LanceTableTarget`: the port for tables, on one Lance dataset for each table.

Each dataset is fenced and committed by itself, the entity's own one last: its commits carry the marks, and the versions
of the others beside it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

from instep.domain.waves import Mark
from instep.errors import UserError
from instep.targets.lance import aliases
from instep.targets.lance.location import Location, lance_library, location_of
from instep.targets.lance.target import LanceTarget
from instep.targets.ownership import NO_OWNER, Owner
from instep.targets.table_indexes import TableIndexes, drifted
from instep.targets.table_target import (
    INSTANCE,
    OWN,
    THERE,
    Drift,
    Held,
    TableSpec,
    TableWriter,
    arrow_schema,
    checked_prefix,
    decode_specs,
    encode_specs,
    spec_of,
    version_columns,
)

if TYPE_CHECKING:
    import pyarrow as pa


_SPECS = "instep.tables"


@dataclass(frozen=True)
class LanceTableTarget(TableIndexes):
    """Tables as Lance datasets under `uri`; the options are those of `LanceTarget`."""

    uri: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    keep_seconds: float = 3600.0
    owner: Owner = field(default=NO_OWNER, kw_only=True)
    scope: str = field(default="", kw_only=True)

    kind: Literal["transactional"] = field(default="transactional", init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "uri", location_of(self.uri).uri)

    @cached_property
    def _place(self) -> Location:
        return location_of(self.uri, self.storage_options)

    @cached_property
    def _datasets(self) -> LanceTarget:
        """Base of both kinds of targets."""
        return LanceTarget(self.uri, self.storage_options, self.keep_seconds, owner=self.owner)

    @property
    def shown(self) -> str:
        return self._place.shown

    def owner_of(self, name: str) -> str | None:
        """The own table says it for all of an index."""
        return self._datasets.owner_of(name)

    def claim(self, name: str, *, of: str) -> None:
        self._datasets.claim(name, of=of)

    def check(self) -> None:
        self._datasets.check()

    def _make(self, physical: str, specs: Sequence[TableSpec]) -> None:
        # The own one last: if it is there, all are.
        for spec in reversed(specs):
            self._create(physical, spec, specs)

    def _create(self, physical: str, spec: TableSpec, specs: Sequence[TableSpec]) -> None:
        from instep.targets.lance.commits import DELETIONS, OWNER

        lance = lance_library()
        place, table = self._place, spec.table(physical)
        if place.has(table):
            return
        if odd := [each.name for each in spec.columns if "." in each.name or "`" in each.name]:
            raise UserError(f"{spec}: column {odd[0]!r}", hint="Lance takes no '.' and no '`' in names: rename it.")
        metadata = {"instep.dataset": uuid.uuid4().hex, DELETIONS: "0"}
        if spec.kind == OWN:
            metadata |= {_SPECS: encode_specs(specs), OWNER: self.owner.id}
        schema = _stored_schema(spec).with_metadata(metadata)
        try:
            # "create" is atomic: of two at once, one makes the first version and the other fails.
            options = dict(place.storage_options) or None
            lance.write_dataset(schema.empty_table(), place.dataset_uri(table), mode="create", storage_options=options)
        except (OSError, ValueError, RuntimeError):
            if not place.has(table):
                with place.understood():
                    raise

    def exists(self, physical: str) -> bool:
        """Whether all tables are there, which another process may have dropped; also of an index of documents, which an
        entity may have had before.
        """
        own = self._place.find(physical)
        if own is None:
            return False
        stored = own.schema_metadata.get(_SPECS)
        others = [each for each in decode_specs(stored) if each.kind != OWN] if stored else []
        return all(self._place.has(each.table(physical)) for each in others)

    def specs(self, physical: str) -> tuple[TableSpec, ...]:
        stored = self._place.open(physical).schema_metadata.get(_SPECS)
        if stored is None:
            raise UserError(f"index {physical!r} holds documents, not tables", where=self._place.shown)
        return decode_specs(stored)

    def drift(self, physical: str, specs: Sequence[TableSpec]) -> Sequence[Drift]:
        def found(spec: TableSpec) -> Mapping[str, str]:
            table = self._place.find(spec.table(physical))
            return {} if table is None else _types(table.schema)

        stored = self.specs(physical) if self._place.has(physical) else ()
        return drifted(specs, stored, lambda spec: _types(_stored_schema(spec)), found)

    def fence(self, physical: str, epoch: int, marks: Sequence[Mark] = ()) -> int:
        from instep.targets.lance import commits

        self.demand(physical)
        beside = {
            spec.kind: commits.fence(self._place, spec.table(physical), epoch, marks, scope=self.scope)
            for spec in self.specs(physical)
            if spec.kind != OWN
        }
        owned = partial(self.taken, physical)
        return commits.fence(self._place, physical, epoch, marks, scope=self.scope, beside=beside, owned=owned)

    def epoch(self, physical: str) -> int:
        from instep.targets.lance import commits

        return commits.newest_epoch(self._place, physical, scope=self.scope)

    def writer(self, physical: str, base: int) -> TableWriter:
        from instep.targets.lance.staging import LanceTableWriter

        return LanceTableWriter(self._place, physical, self.specs(physical))

    def commit(
        self,
        physical: str,
        *,
        base: int,
        epoch: int,
        attempt: str,
        staged: Sequence[bytes],
        marks: Sequence[Mark],
    ) -> int:
        from instep.targets.lance import commits
        from instep.targets.lance.merging import Merge
        from instep.targets.lance.staging import StagedFragments

        place = self._place
        done = commits.is_in(place, physical, base=base, epoch=epoch, attempt=attempt, marks=marks, scope=self.scope)
        if done is not None:
            return done
        specs = self.specs(physical)
        beside = commits.versions_beside(place, physical, base) if len(specs) > 1 else {}
        # Outcomes are asked of the own table only.
        fences = [mark._replace(outcome=b"") for mark in marks]
        version = base
        for spec in reversed(specs):
            own, fragments = spec.kind == OWN, StagedFragments.of(spec.kind, staged)
            if own or any(fragments):
                table = spec.table(physical)
                version = commits.commit(
                    place,
                    table,
                    base=base if own else beside[spec.kind],
                    epoch=epoch,
                    attempt=attempt,
                    change=Merge(place, table, spec, fragments, prefix=self.scope),
                    marks=marks if own else fences,
                    scope=self.scope,
                    beside=beside if own else None,
                )
                if not own:
                    beside[spec.kind] = version
        return version

    def leaving(self, physical: str, staged: Sequence[bytes]) -> int:
        from instep.targets.lance.merging import Merge
        from instep.targets.lance.staging import StagedFragments

        fragments = StagedFragments.of(OWN, staged)._replace(written=[])
        if not any(fragments):
            return 0
        dataset, spec = self._open(physical, OWN)
        with self._place.understood():
            return Merge(self._place, spec.table(physical), spec, fragments, prefix=self.scope).leaving(dataset)

    def committed(self, physical: str, since: int, slice_ids: Iterable[str]) -> Mapping[str, bytes]:
        from instep.targets.lance import commits

        return commits.committed(self._place, physical, since, slice_ids, surely=False)

    def maintain(self, physical: str, *, full: bool = False) -> None:
        from instep.targets.lance import upkeep

        self.demand(physical)
        for spec in self.specs(physical):
            upkeep.maintain_table(self._place, spec.table(physical), full=full, keep_seconds=self.keep_seconds)

    def promote(self, alias: str, physical: str | None, epoch: int) -> None:
        from instep.targets.lance.commits import State

        def superseded(served: str) -> bool:
            found = self._place.find(served)
            return found is not None and State.of(found).reign(self.scope).epoch > epoch

        if physical is not None:
            self._place.open(physical)
            self.demand(physical)
        owned = partial(self._datasets.taken_alias, alias)
        aliases.promote(self._place, alias, physical, epoch, owned, scope=self.scope, superseded=superseded)

    def served(self, alias: str) -> str | None:
        return self._datasets.served(alias)

    def rows(self, physical: str, kind: str = OWN) -> int:
        from instep.targets.lance.commits import State

        dataset, _ = self._open(physical, kind)
        deletions = State.of(dataset).deletions
        with self._place.understood():
            # An index that is older than their being counted has to be read.
            return int(dataset.count_rows(THERE) if deletions is None else dataset.count_rows() - deletions)

    def held(self, physical: str, instance: str, *, prefix: str = "") -> Held:
        import pyarrow as pa
        import pyarrow.compute as pc

        from instep.targets.lance.deletions import same

        dataset, spec = self._open(physical, OWN)
        scope = checked_prefix(spec, prefix) if prefix else None
        mine = found = 0
        for batch in self._rows(dataset, THERE, [*([scope] if scope else []), INSTANCE], spec, {}):
            below = batch.filter(pc.starts_with(batch.column(scope), prefix)) if scope else batch
            mine += below.filter(same(below.column(INSTANCE), instance, pa.string())).num_rows
            found += below.num_rows
        return Held(mine, found - mine)

    def row(self, physical: str, key: Sequence[Any], kind: str = OWN) -> Mapping[str, Any] | None:
        import pyarrow as pa

        from instep.arrow.keys import key_numbers
        from instep.targets.lance.staging import KEY

        dataset, spec = self._open(physical, kind)
        schema = arrow_schema(spec)
        where = dict(zip(spec.key, key, strict=True))
        (number,) = key_numbers([pa.array([value], schema.field(name).type) for name, value in where.items()])
        found = list(self._rows(dataset, f"{THERE} AND {KEY} = {number}", schema.names, spec, where))
        return found[0].to_pylist()[0] if found else None

    def read(
        self,
        physical: str,
        kind: str = OWN,
        *,
        where: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        import pyarrow as pa

        dataset, spec = self._open(physical, kind)
        schema = arrow_schema(spec)
        for name in columns or ():
            spec.type_of(name)
        wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        batches = self._rows(dataset, THERE, wanted.names, spec, where or {})
        return pa.Table.from_batches((each.cast(wanted) for each in batches), wanted)

    def versions(self, physical: str) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        dataset, spec = self._open(physical, OWN)
        schema, names = arrow_schema(spec), version_columns(spec)
        wanted = pa.schema([schema.field(name) for name in names])
        return (each.cast(wanted) for each in self._rows(dataset, THERE, names, spec, {}))

    def _rows(
        self, dataset: Any, condition: str, names: Sequence[str], spec: TableSpec, where: Mapping[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        """Batches that are not empty. Values of `where` are compared here: lance would take them as SQL."""
        from instep.targets.lance.deletions import same

        schema = arrow_schema(spec)
        for name in where:
            spec.type_of(name)
        with self._place.understood():
            scanner = dataset.scanner(columns=list(dict.fromkeys([*names, *where])), filter=condition)
            for batch in scanner.to_batches():
                found = batch
                for name, value in where.items():
                    found = found.filter(same(found.column(name), value, schema.field(name).type))
                if found.num_rows:
                    yield found.select(names)

    def _delete(self, physical: str, epoch: int, *, prefix: str, but: str | None) -> None:
        from instep.targets.lance import commits
        from instep.targets.lance.deletions import deletion

        self.demand(physical)
        for spec in reversed(self.specs(physical)):
            table = spec.table(physical)
            base = int(self._place.open(table).version)
            change = deletion(self._place, spec, table, prefix=prefix, but=but)
            attempt = f"delete-{uuid.uuid4().hex}"
            commits.commit(
                self._place, table, base=base, epoch=epoch, attempt=attempt, change=change, marks=(), scope=self.scope
            )

    def _indexes(self, prefix: str) -> list[str]:
        return self._place.datasets(prefix)

    def _idle(self, physical: str) -> float:
        return self._place.idle(physical)

    def drop(self, physical: str) -> None:
        self.demand(physical)
        if self._place.has(physical):
            for spec in reversed(self.specs(physical)):
                self._datasets.remove(spec.table(physical))
        self._datasets.remove(physical)

    def _open(self, physical: str, kind: str) -> tuple[Any, TableSpec]:
        spec = spec_of(self.specs(physical), kind)
        return self._place.open(spec.table(physical)), spec


def _stored_schema(spec: TableSpec) -> pa.Schema:
    import pyarrow as pa

    from instep.targets.lance.staging import KEY

    return arrow_schema(spec).append(pa.field(KEY, pa.uint64(), nullable=False))


def _types(schema: pa.Schema) -> dict[str, str]:
    return {each.name: f"{each.type}{'' if each.nullable else ' not null'}" for each in schema}
