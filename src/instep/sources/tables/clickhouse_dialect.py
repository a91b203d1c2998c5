"""Conditions in ClickHouse's SQL. Values are bound, never part of the text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from instep.clickhouse.session import quoted
from instep.domain.columns import BOOL, INT32, INT64
from instep.domain.keys import KeyKind, KeyValue, key_of
from instep.errors import UserError
from instep.sources.tables.clickhouse_types import SourceColumn

_KINDS = {KeyKind.INT64: ("int32", "int64")}


@dataclass
class ClickHouseDialect:
    """See `predicates.Dialect`. What its conditions need bound is in `values`."""

    columns: Mapping[str, SourceColumn]
    values: dict[str, KeyValue] = field(default_factory=dict)

    def column(self, name: str) -> str:
        return self.columns[name].compared

    same = column

    def constant(self, name: str, value: KeyValue) -> str:
        column = self.columns[name]
        (kind,) = key_of(value).kinds
        if column.column.type.name not in _KINDS.get(kind, (kind,)):
            raise UserError(f"column {name!r} is {column.stored}, and is to be compared with a {kind}")
        parameter = f"p{len(self.values)}"
        self.values[parameter] = value
        return column.constant(parameter)

    def flag_unset(self, name: str) -> str:
        column = self.columns[name]
        if column.column.type not in (BOOL, INT32, INT64):
            raise UserError(
                f"{name!r} cannot say whether a row is deleted: it is {column.stored}, neither Bool nor a whole number"
            )
        return f"ifNull({quoted(name)}, 0) = 0"

    def keyed(self, name: str) -> str:
        """A condition: there is a value, and it can be in a key."""
        condition = f"{quoted(name)} IS NOT NULL"
        return f"{condition} AND isValidUTF8({quoted(name)})" if self.columns[name].stored == "String" else condition
