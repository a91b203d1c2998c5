"""Keys as people write them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.columns import (
    BOOL,
    BYTES,
    DATE,
    INT32,
    INT64,
    STRING,
    TIMESTAMP,
    Column,
    ColumnType,
    decimal_type,
)
from instep.domain.keys import KeyValue, keys_in


def columns(*types: ColumnType) -> list[Column]:
    return [Column(f"c{at}", each) for at, each in enumerate(types)]


@pytest.mark.parametrize(
    ("text", "types", "key"),
    [
        ("-5", [INT32], (-5,)),
        ("1,a,b,2", [INT64, STRING, INT64], (1, "a,b", 2)),
        ("", [STRING], ("",)),
        ("00ff,true", [BYTES, BOOL], (b"\x00\xff", True)),
        ("2026-01-02", [DATE], (date(2026, 1, 2),)),
        ("2026-01-02 03:04:05.000006Z", [TIMESTAMP], (datetime(2026, 1, 2, 3, 4, 5, 6, UTC),)),
        ("2026-01-02T03:04:05", [TIMESTAMP], (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),)),
        ("1.50", [decimal_type(3, 1)], (Decimal("1.5"),)),
    ],
)
def test_a_text_is_a_key_of_these_types(text: str, types: list[ColumnType], key: tuple[KeyValue, ...]) -> None:
    assert list(keys_in(text, columns(*types))) == [key]


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("x", [INT64]),
        (str(2**31), [INT32]),
        ("1", [INT64, INT64]),
        ("1,2,3", [INT64, INT64]),
        ("yes", [BOOL]),
        ("f", [BYTES]),
        ("1.55", [decimal_type(3, 1)]),
        ("100", [decimal_type(3, 1)]),
        ("NaN", [decimal_type(3, 1)]),
        ("2026-13-01", [DATE]),
    ],
)
def test_a_text_that_is_no_key_finds_none(text: str, types: list[ColumnType]) -> None:
    assert list(keys_in(text, columns(*types))) == []


@given(st.lists(st.text(alphabet="a,"), min_size=1, max_size=3))
def test_texts_with_commas_are_found_whichever_way_they_are_cut(values: list[str]) -> None:
    if sum(each.count(",") for each in values) < 8:
        assert tuple(values) in list(keys_in(",".join(values), columns(*[STRING] * len(values))))
