"""Rows of a table's source and of its index, as the two sides of a comparison of keys and versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from instep.domain.columns import Column
from instep.domain.rows import Selection
from instep.entities.tables.adapters import TableAdapters
from instep.ledger.ledger import Ledger
from instep.targets.table_target import INSTANCE, OWN, VERSION, spec_of, version_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from instep.pipeline.tables.sides import KeyReader, Side


def key_reader(setup: TableAdapters) -> KeyReader:
    """The reader of the source's rows."""
    from instep.pipeline.tables.sides import KeyReader

    types = {each.name: each.type for each in setup.columns()}
    return KeyReader(
        tuple(Column(name, types[name]) for name in setup.rows.key), setup.rows.watermark, setup.rows.deleted
    )


def source_side(setup: TableAdapters, reader: KeyReader, *, everywhere: bool = False) -> Side:
    """The rows of the partition, or of all."""
    from instep.pipeline.engine.key_side import SparkSide
    from instep.pipeline.tables.sides import HereSide

    selection = Selection(setup.ref.scope, others=() if everywhere else None)

    def batches() -> Iterator[pa.RecordBatch]:
        found = setup.source.keys(setup.rows, selection, reader.names)
        assert found is not None, "it could be read a moment ago"
        return reader.read(found)

    if setup.source.keys(setup.rows, selection, reader.names) is not None:
        return HereSide(batches, reader.schema)
    return SparkSide(partial(setup.source.frame, setup.spark, setup.rows, selection), reader)


def outside_side(setup: TableAdapters, ledger: Ledger, reader: KeyReader) -> Side | None:
    """Rows of files that are deleted, or in other namespaces: others may have earlier versions of them, which are
    neither. None: there are no such rows.
    """
    moves = setup.others(ledger) is not None
    if not setup.source.files() or not (reader.deleted or moves):
        return None
    scope = (setup.rows.scope, setup.ref.scope.path) if moves and setup.rows.scope else None
    return source_side(setup, replace(reader, elsewhere=scope, outside=True), everywhere=moves)


def target_side(setup: TableAdapters, physical: str, reader: KeyReader) -> Side:
    """The rows that the index has of the partition."""
    from instep.pipeline.tables.sides import HereSide, stored_rows

    spec = spec_of(setup.target.specs(physical), OWN)
    version = VERSION if setup.rows.watermark else None

    def batches() -> Iterator[pa.RecordBatch]:
        return stored_rows(in_scope(setup, physical, setup.target.versions(physical)), reader.schema, spec.key, version)

    return HereSide(batches, reader.schema)


def in_scope(setup: TableAdapters, physical: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of the partition, of an index that it may share."""
    import pyarrow.compute as pc

    scope = spec_of(setup.target.specs(physical), OWN).scope
    for each in batches:
        if scope is None or setup.ref.scope.is_global:
            yield each
        else:
            yield each.filter(pc.starts_with(each.column(scope), setup.ref.scope.path))


def rows_of_others(setup: TableAdapters, physical: str, instance: str, reader: KeyReader) -> pa.Table:
    """The rows of the partition that another instance than this one wrote, as a side has them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from instep.pipeline.tables.sides import stored_rows

    spec = spec_of(setup.target.specs(physical), OWN)
    stored = setup.target.read(physical, columns=[*version_columns(spec), INSTANCE])
    others = stored.filter(pc.not_equal(stored[INSTANCE], pa.scalar(instance)))
    found = in_scope(setup, physical, others.to_batches())
    return pa.Table.from_batches(stored_rows(found, reader.schema, spec.key, VERSION), reader.schema)
