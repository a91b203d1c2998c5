"""Rows of an index as a reader finds them, by what they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from instep.targets import table_target
from instep.targets.opensearch import row_layout
from instep.targets.opensearch.indexes import Indexes
from instep.targets.opensearch.row_layout import DELETED, LONGEST_KEYWORD, Declared, fields
from instep.targets.opensearch.row_lines import id_of, stored_names, table
from instep.targets.table_target import TableSpec, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows in one answer.
_PAGE = 2_000

#: Fields that tell equal values from others.
_EXACT = ("keyword", "boolean", "integer", "long")


def read(
    indexes: Indexes,
    index: str,
    spec: TableSpec,
    declared: Declared,
    *,
    where: Mapping[str, Any],
    columns: Sequence[str] | None,
) -> pa.Table:
    """See `TableTarget.read`."""
    import pyarrow.compute as pc

    wanted = [each.name for each in spec.all_columns] if columns is None else list(columns)
    needed = list(dict.fromkeys([*wanted, *where]))
    for name in needed:
        spec.type_of(name)
    names = [*stored_names(needed), DELETED]
    if set(spec.key) <= where.keys():
        id = id_of(spec, [where[name] for name in spec.key])
        sources = [each.source for each in indexes.look(index, [id], names).values()]
    else:
        query = row_layout.there(*_filters(spec, declared, where))
        body = {"query": query, "_source": names}
        sources = [each["_source"] for hits in indexes.scroll(index, body, _PAGE) for each in hits]
    found = table(spec, [each for each in sources if not each.get(DELETED)], needed)
    for name, value in where.items():
        own: Any = found.column(name)
        kind = arrow_schema(spec).field(name).type
        same: Any = pc.is_null(own) if value is None else pc.equal(own, _scalar(value, kind))
        found = found.filter(same)
    return found.select(wanted)


def _scalar(value: Any, kind: pa.DataType) -> Any:
    import pyarrow as pa

    return pa.scalar(value, kind)


def _filters(spec: TableSpec, declared: Declared, where: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The part that the server can tell; the rest is compared afterwards."""
    made = fields(spec, declared)
    found: list[dict[str, Any]] = []
    for name, value in where.items():
        if name == table_target.INSTANCE:
            found.append(row_layout.of_instance(str(value)))
        elif value is not None and made.get(name, {}).get("type") in _EXACT and not _is_long(value):
            found.append({"term": {name: value}})
    return found


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and len(value) > LONGEST_KEYWORD // 2
