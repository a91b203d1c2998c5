"""Facets: how many rows have each value of a column, among those that a search could find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

from instep.domain.document_columns import DocumentColumn, DocumentColumnType
from instep.domain.filters import Condition, FilterValue
from instep.domain.words import TextQuery

#: Values of one facet, at most.
MAX_VALUES: Final = 100

#: Columns whose values are counted: those of others are hardly ever the same.
COUNTED: Final = frozenset(DocumentColumnType) - {DocumentColumnType.FLOAT, DocumentColumnType.TIMESTAMP}

Facet = list[tuple[FilterValue, int]]

_EPOCH: Final = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Counted:
    """The values to be counted: those of these columns in rows that a search by `text` finds (None: in all), and that
    `where` holds for. Of each column at most `limit` values, the most frequent ones.
    """

    columns: Sequence[DocumentColumn]
    text: TextQuery | None
    where: Condition | None
    limit: int

    def facets(self, found: Mapping[str, Iterable[tuple[Any, int]]]) -> dict[str, Facet]:
        """The answer, of values and counts as a store gave them: most frequent first, then in order."""
        facets = {}
        for column in self.columns:
            counts: Counter[Any] = Counter()
            for value, count in found[column.name]:
                if value is not None:
                    counts[_value(column, value)] += count
            facets[column.name] = sorted(counts.items(), key=lambda each: (-each[1], each[0]))[: self.limit]
        return facets


def _value(column: DocumentColumn, stored: Any) -> FilterValue:
    """A value as it was before it was stored: as a number, where a store has no such type."""
    match column.type:
        case DocumentColumnType.BOOL:
            return bool(stored)
        case DocumentColumnType.DATE if not isinstance(stored, date):
            return _EPOCH + timedelta(days=int(stored))
        case DocumentColumnType.INT | DocumentColumnType.INTS:
            return int(stored)
    found: FilterValue = stored
    return found
