"""Facets: how many rows have each value of a column, among those that a search could find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from instep.domain.document_columns import DocumentColumn, DocumentColumnType
from instep.domain.filters import Condition, FilterValue
from instep.domain.words import TextQuery
from instep.targets.stored_values import restored_element

#: Values of one facet, at most.
MAX_VALUES: Final = 100

#: Columns whose values are counted: those of others are hardly ever the same.
COUNTED: Final = frozenset(DocumentColumnType) - {DocumentColumnType.FLOAT, DocumentColumnType.TIMESTAMP}

Facet = list[tuple[FilterValue, int]]


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
                    counts[restored_element(column, value)] += count
            facets[column.name] = sorted(counts.items(), key=lambda each: (-each[1], each[0]))[: self.limit]
        return facets
