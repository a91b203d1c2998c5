"""The meaning of a filter to a target: the same to every one, and before anything is ranked."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from instep.arrow.values import column_type
from instep.domain.document_columns import BUILT_IN, DocumentColumnType
from instep.domain.filter_language import parsed
from instep.domain.words import text_query
from instep.targets.document_target import ChunkChanges, DocumentTarget
from instep.targets.facets import COUNTED, Counted
from instep.testing.filter_drawing import COLUMNS, Drawn, filters, rows
from instep.testing.target_rows import BUCKETS, DIMENSIONS, NOTHING, OnOneIndex, rows_of

_ROWS: Final = 90
_ALL: Final = list(HealthCheck)
_QUERY: Final = [1.0, 0.2, 0.4, 0.1]

#: Two values of each type, as filters have them.
_TWO: Final = {
    DocumentColumnType.STRING: ("'a'", "'b'"),
    DocumentColumnType.INT: ("1", "2"),
    DocumentColumnType.FLOAT: ("0.5", "1.5"),
    DocumentColumnType.BOOL: ("true", "false"),
    DocumentColumnType.TIMESTAMP: ("'2024-01-01T00:00:00Z'", "'2025-01-01T00:00:00Z'"),
    DocumentColumnType.DATE: ("'2024-01-01'", "'2025-01-01'"),
}

#: Filters in one example: reading an index costs less than what Hypothesis does around it.
_AT_ONCE: Final = 8


def with_columns(count: int, *, epoch: int = 1) -> pa.RecordBatch:
    """Rows of `row_schema` with the values of `filter_drawing.rows`, each a document of its own."""
    found = rows_of({f"d{number}": [f"a word and {number}"] for number in range(count)}, epoch=epoch)
    values, place = rows(count), found.schema.get_field_index("_ref")
    for at, column in enumerate(COLUMNS):
        kind = column_type(column.type)
        array = pa.array([each[column.name] for each in values], kind)
        found = found.add_column(place + at, pa.field(column.name, kind), array)
    return found


class FiltersContract(OnOneIndex):
    #: Hypothesis draws so many times `_AT_ONCE` filters, before upkeep and after it.
    examples = 15

    @pytest.fixture
    def filtered(self, target: DocumentTarget) -> list[dict[str, Any]]:
        """The rows that are in the index, half of them since its upkeep: a target may not take all of them."""
        target.create(self.physical, DIMENSIONS, BUCKETS, COLUMNS)
        base = target.fence(self.physical, 1)
        made = with_columns(_ROWS)
        unfit = target.writer(self.physical, base).unfit(pa.Table.from_batches([made]))
        made = made.filter(pa.array([number not in unfit for number in range(_ROWS)]))
        half = len(made) // 2
        for number, part in enumerate((made.slice(0, half), made.slice(half)), start=1):
            staged = target.writer(self.physical, base).stage(iter([ChunkChanges(part, NOTHING)]))
            target.commit(self.physical, base=base, epoch=1, attempt=str(number), staged=[staged], marks=[])
            if number == 1:
                target.maintain(self.physical)
        found: list[dict[str, Any]] = made.to_pylist()
        return found

    def asked(self, target: DocumentTarget, text: str, mode: Any, limit: int) -> list[str]:
        where = parsed(text, (*BUILT_IN, *COLUMNS))
        hits = target.search(
            self.physical, entity="D", text=text_query("word"), vector=_QUERY, mode=mode, limit=limit, where=where
        )
        return [hit.document_id for hit in hits]

    def test_a_filter_finds_the_rows_that_it_holds_for(
        self, target: DocumentTarget, filtered: list[dict[str, Any]]
    ) -> None:
        # A filter says enough by itself: to look for a smaller one takes more time than it saves.
        drawing = settings(deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=_ALL)

        @settings(drawing, max_examples=self.examples)
        @given(
            st.lists(st.tuples(filters(), st.sampled_from(["text", "vector"])), min_size=_AT_ONCE, max_size=_AT_ONCE)
        )
        def compare(drawn: list[tuple[Drawn, str]]) -> None:
            for filter, mode in drawn:
                expected = {row["document_id"] for row in filtered if filter.holds(row) is True}
                assert set(self.asked(target, filter.text, mode, 1000)) == expected, (filter.text, mode)

        compare()
        target.maintain(self.physical, full=True)
        compare()

    @pytest.mark.parametrize("mode", ["text", "vector", "hybrid"])
    def test_a_hit_has_the_values_of_the_columns_that_are_asked_for(
        self, target: DocumentTarget, filtered: list[dict[str, Any]], mode: Any
    ) -> None:
        hits = target.search(
            self.physical, entity="D", text=text_query("word"), vector=_QUERY, mode=mode, limit=1000, columns=COLUMNS
        )
        found = {hit.document_id: hit.columns for hit in hits}
        names = [each.name for each in COLUMNS]
        rows = {row["document_id"]: {name: row[name] for name in names} for row in filtered}
        assert found == rows
        for id, values in found.items():
            assert [type(each) for each in values.values()] == [type(each) for each in rows[id].values()]
        hits = target.search(
            self.physical, entity="D", text=text_query("word"), vector=_QUERY, mode=mode, limit=3, columns=COLUMNS[1:2]
        )
        assert [list(each.columns) for each in hits] == [[COLUMNS[1].name]] * 3

    def test_a_null_is_neither_of_two_values_nor_not(
        self, target: DocumentTarget, filtered: list[dict[str, Any]]
    ) -> None:
        """No value is both of two: so the filter holds for every row that has a value."""
        for column in (each for each in COLUMNS if not each.type.listed):
            name, (one, other) = column.name, _TWO[column.type]
            expected = {row["document_id"] for row in filtered if row[name] is not None}
            for text in (f"{name} != {one} OR {name} != {other}", f"NOT ({name} = {one} AND {name} = {other})"):
                assert set(self.asked(target, text, "text", 1000)) == expected, text

    def test_rows_are_chosen_before_they_are_ranked(
        self, target: DocumentTarget, filtered: list[dict[str, Any]]
    ) -> None:
        """Whichever few rows a filter leaves, the nearest of them are found: also those that are the last of all."""
        far = sorted(filtered, key=lambda row: _cosine(row["vector"], _QUERY))
        for row in far[:5]:
            text = f"source_uri = '{row['source_uri']}'"
            assert self.asked(target, text, "vector", 1) == [row["document_id"]]
            assert self.asked(target, text, "text", 1) == [row["document_id"]]
            assert self.asked(target, text, "hybrid", 1) == [row["document_id"]]
        some = [row for row in far if row["c_bool"] is True]
        assert self.asked(target, "c_bool = true", "vector", 3) == [row["document_id"] for row in some[:-4:-1]]

    def test_one_of_many_rows_with_one_vector_is_found_by_a_filter(self, target: DocumentTarget) -> None:
        """As boilerplate has it: a graph of vectors may reach some of these never."""
        target.create(self.physical, DIMENSIONS, BUCKETS)
        base = target.fence(self.physical, 1)
        names = [f"d{number}" for number in range(1_200)]
        rows = rows_of({name: [f"boilerplate {at % 3}"] for at, name in enumerate(names)})
        staged = target.writer(self.physical, base).stage(iter([ChunkChanges(rows, NOTHING)]))
        target.commit(self.physical, base=base, epoch=1, attempt="1", staged=[staged], marks=[])
        target.maintain(self.physical, full=True)
        uris = dict(zip(names, rows["source_uri"].to_pylist(), strict=True))
        for name in names[::40]:
            assert self.asked(target, f"source_uri = '{uris[name]}'", "vector", 10) == [name]
        some = names[::29]
        among = f"source_uri IN ({', '.join(repr(uris[name]) for name in some)})"
        assert sorted(self.asked(target, among, "vector", 100)) == sorted(some)

    def test_columns_that_are_not_declared_are_filtered_by(
        self, target: DocumentTarget, filtered: list[dict[str, Any]]
    ) -> None:
        everything = {row["document_id"] for row in filtered}
        assert set(self.asked(target, "source_uri LIKE 'file:///d1%'", "text", 1000)) == {
            each for each in everything if each.startswith("d1")
        }
        assert set(self.asked(target, "title IS NULL AND modified IS NULL", "text", 1000)) == everything
        assert self.asked(target, "title >= 'a' OR modified > '2024-01-01' OR title = 'x'", "text", 1000) == []

    def test_facets_count_the_values_of_what_is_found(
        self, target: DocumentTarget, filtered: list[dict[str, Any]]
    ) -> None:
        """Under each filter, with and without words; an element that a list has twice counts once."""
        columns = [each for each in COLUMNS if each.type in COUNTED]
        for text in (None, "c_bool = true OR c_int IS NULL", "c_strings IS NOT NULL"):
            where = text and parsed(text, (*BUILT_IN, *COLUMNS))
            holding = (
                {each["document_id"] for each in filtered}
                if text is None
                else set(self.asked(target, text, "text", 1000))
            )
            for words, found in ((None, holding), ("a word", holding), ("7", holding & {"d7"}), ("absent", set())):
                expected = {
                    each.name: _counts(row[each.name] for row in filtered if row["document_id"] in found)
                    for each in columns
                }
                counted = target.facets(
                    self.physical, Counted(columns, text_query(words) if words else None, where or None, 100)
                )
                assert counted == expected, (text, words)
        first = target.facets(self.physical, Counted(columns[:1], None, None, 2))
        (counts,) = first.values()
        assert [count for _, count in counts] == [
            count for _, count in _counts(row[columns[0].name] for row in filtered)[:2]
        ]


def _counts(values: Iterable[Any]) -> list[tuple[Any, int]]:
    """The number of each of these (of lists: of their elements), most first."""
    found = Counter(
        each for value in values if value is not None for each in (set(value) if isinstance(value, list) else [value])
    )
    return sorted(found.items(), key=lambda each: (-each[1], each[0]))


def _cosine(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True)) / math.hypot(*one) / math.hypot(*other)
