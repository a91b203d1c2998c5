from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.columns import FLOAT64, INT32, INT64, STRING, Column
from instep.domain.drift import Difference, drift


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
            Difference("", "column 'email'", "", "string"),
            "own table: column 'email' is new: string",
        ),
        ([own(name=None), EDGE], Difference("", "column 'name'", "string", ""), "own table: column 'name' is gone"),
        (
            [own(size=INT64), EDGE],
            Difference("", "column 'size'", "int32", "int64"),
            "own table: column 'size' was int32 and is int64",
        ),
        (
            [OWN, EDGE, replace(EDGE, kind="MERGED")],
            Difference("MERGED", "the table", "", "(id)"),
            "edges 'MERGED': the table is new: (id)",
        ),
        ([OWN], Difference("AUTHORED", "the table", "(id)", ""), "edges 'AUTHORED': the table is gone"),
        (
            [replace(OWN, key=("id", "name")), EDGE],
            Difference("", "the key", "(id)", "(id, name)"),
            "own table: the key was (id) and is (id, name)",
        ),
        (
            [replace(OWN, scope="name"), EDGE],
            Difference("", "the scope", "none", "name"),
            "own table: the scope was none and is name",
        ),
    ],
)
def test_each_difference_is_reported(declared: list[Table], difference: Difference, said: str) -> None:
    found = drift([OWN, EDGE], declared)
    assert found == (difference,)
    assert str(found[0]) == said


def test_the_order_of_columns_and_tables_does_not_count() -> None:
    assert not drift([OWN, EDGE], [EDGE, replace(OWN, columns=OWN.columns[::-1])])


types = st.sampled_from([INT32, INT64, STRING, FLOAT64])
tables = st.dictionaries(st.sampled_from("abcd"), types, max_size=4).map(
    lambda columns: Table("", (Column("id", INT64), *(Column(name, kind) for name, kind in columns.items())))
)


@given(tables, tables)
def test_every_column_is_accounted_for(stored: Table, declared: Table) -> None:
    before = {column.name: column.type for column in stored.columns}
    after = {column.name: column.type for column in declared.columns}
    differing = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert {each.what for each in drift([stored], [declared])} == {f"column {name!r}" for name in differing}
