"""Declared tables that keep their versions, as the libraries of Delta and Iceberg read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.project import DeltaSource, LakeSource

if TYPE_CHECKING:
    from instep.sources.tables.delta_rows import DeltaRows
    from instep.sources.tables.iceberg_rows import IcebergRows


def lake_rows(declared: LakeSource) -> DeltaRows | IcebergRows:
    if isinstance(declared, DeltaSource):
        from instep.sources.tables.delta_rows import DeltaRows

        return DeltaRows(declared.path[0], declared.storage())
    from instep.sources.tables.iceberg_rows import IcebergRows

    return IcebergRows(declared.table, declared.options())
