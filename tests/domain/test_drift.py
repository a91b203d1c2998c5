"""Drift: what differs, and whether stored rows stay what a rebuild would write."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.columns import FLOAT64, INT32, INT64, STRING, Column, widens
from instep.domain.drift import Change, Difference, TableDrift, drift


@dataclass(frozen=True)
class Table:
    kind: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ("id",)
    scope: str | None = None


OWN = Table("", (Column("id", INT64), Column("name", STRING), Column("size", INT32)))
EDGE = Table("AUTHORED", (Column("id", INT64), Column("from_id", INT32)))


def own(**types: object) -> Table:
    """The own table with columns of other types; None drops one."""
    columns = {column.name: column.type for column in OWN.columns} | types
    return replace(OWN, columns=tuple(Column(name, kind) for name, kind in columns.items() if kind))  # type: ignore[arg-type]  # types are ColumnType or None


@pytest.mark.parametrize(
    ("declared", "difference", "said"),
    [
        (
            [own(email=STRING), EDGE],
            Difference(Change.ADDED, "", "column 'email'", "", "string"),
            "own table: column 'email' is new: nothing stored has it, so the index is rebuilt",
        ),
        (
            [own(name=None), EDGE],
            Difference(Change.DROPPED, "", "column 'name'", "string"),
            "own table: column 'name' is dropped, in place",
        ),
        (
            [own(size=INT64), EDGE],
            Difference(Change.WIDENED, "", "column 'size'", "int32", "int64"),
            "own table: column 'size' is widened from int32 to int64, in place",
        ),
        (
            [own(name=INT64), EDGE],
            Difference(Change.CHANGED, "", "column 'name'", "string", "int64"),
            "own table: column 'name' was string and is int64, so the index is rebuilt",
        ),
        (
            [OWN, replace(EDGE, columns=(EDGE.columns[0], Column("from_id", INT64)))],
            Difference(Change.WIDENED, "AUTHORED", "column 'from_id'", "int32", "int64"),
            "edges 'AUTHORED': column 'from_id' is widened from int32 to int64, in place",
        ),
        (
            [OWN, EDGE, replace(EDGE, kind="MERGED")],
            Difference(Change.ADDED, "MERGED", "the table"),
            "edges 'MERGED': the table is new: nothing stored has it, so the index is rebuilt",
        ),
        (
            [OWN],
            Difference(Change.DROPPED, "AUTHORED", "the table"),
            "edges 'AUTHORED': the table is dropped, in place",
        ),
        (
            [replace(OWN, key=("id", "name")), EDGE],
            Difference(Change.CHANGED, "", "the key", "(id)", "(id, name)"),
            "own table: the key was (id) and is (id, name), so the index is rebuilt",
        ),
        (
            [replace(OWN, scope="name"), EDGE],
            Difference(Change.CHANGED, "", "the scope", "none", "name"),
            "own table: the scope was none and is name, so the index is rebuilt",
        ),
    ],
)
def test_each_difference_is_told_with_what_follows(declared: list[Table], difference: Difference, said: str) -> None:
    found = drift([OWN, EDGE], declared)
    assert found == TableDrift((difference,))
    assert found
    assert found.of(difference.change) == (difference,)
    assert found.needs_rebuild is (difference.change not in (Change.DROPPED, Change.WIDENED))
    assert [str(each) for each in found.differences] == [said]


def test_the_order_of_columns_and_tables_does_not_count() -> None:
    found = drift([OWN, EDGE], [EDGE, replace(OWN, columns=OWN.columns[::-1])])
    assert not found
    assert not found.needs_rebuild


def test_a_key_is_not_widened_under_its_store() -> None:
    stored = replace(OWN, columns=(Column("id", INT32), *OWN.columns[1:]))
    found = drift([stored], [OWN])
    assert found.of(Change.CHANGED) == (Difference(Change.CHANGED, "", "column 'id'", "int32", "int64"),)
    assert found.needs_rebuild


def test_one_difference_that_needs_a_rebuild_is_enough() -> None:
    found = drift([OWN], [own(size=INT64, name=None, email=STRING)])
    assert [each.change for each in found.differences] == [Change.WIDENED, Change.ADDED, Change.DROPPED]
    assert found.needs_rebuild


types = st.sampled_from([INT32, INT64, STRING, FLOAT64])
tables = st.dictionaries(st.sampled_from("abcd"), types, max_size=4).map(
    lambda columns: Table("", (Column("id", INT64), *(Column(name, kind) for name, kind in columns.items())))
)


@given(tables, tables)
def test_every_column_is_accounted_for(stored: Table, declared: Table) -> None:
    before = {column.name: column.type for column in stored.columns}
    after = {column.name: column.type for column in declared.columns}
    found = drift([stored], [declared])
    assert {each.what for each in found.of(Change.ADDED)} == {f"column {name!r}" for name in after.keys() - before}
    assert {each.what for each in found.of(Change.DROPPED)} == {f"column {name!r}" for name in before.keys() - after}
    both = {name for name in before.keys() & after if before[name] != after[name]}
    wide = {name for name in both if widens(before[name], after[name])}
    assert {each.what for each in found.of(Change.WIDENED)} == {f"column {name!r}" for name in wide}
    assert {each.what for each in found.of(Change.CHANGED)} == {f"column {name!r}" for name in both - wide}
    assert bool(found) == (before != after)
