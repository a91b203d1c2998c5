"""Keys that URIs of rows name: read for many at once, they are those that are read one by one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from instep.domain.columns import INT64, STRING, ColumnType
from instep.domain.rows import row_key, row_uri
from instep.sources.tables.row_keys import NumberKeys, row_keys, values_at

NUMBERS = (0, 7, -1, 10**17, -(10**17), 2**63 - 1, -(2**63), 42, 7)


@pytest.mark.parametrize("most", [3, len(NUMBERS)], ids=["of numbers that are read in columns", "of any number"])
def test_keys_are_those_that_are_read_one_by_one(most: int) -> None:
    uris = [row_uri("Ticket", (each,)) for each in NUMBERS[:most]]
    asked = pa.chunked_array([uris[:2], uris[2:]])

    assert list(row_keys(asked, [INT64])) == [row_key(each, [INT64]) for each in uris]
    assert values_at(row_keys(asked, [INT64])) == sorted(set(NUMBERS[:most]))


def test_a_key_of_one_number_makes_no_object_of_each_row() -> None:
    keys = row_keys(pa.chunked_array([["table://ticket/3", "table://ticket/-2"]]), [INT64])

    assert isinstance(keys, NumberKeys)
    assert values_at(keys) == [-2, 3]
    assert keys[1:][0] == row_key("table://ticket/-2", [INT64])


@pytest.mark.parametrize(
    ("uri", "types"),
    [
        ("table://ticket/(null)", [INT64]),
        ("table://ticket/x", [INT64]),
        ("table://ticket/1/2", [INT64]),
        ("table://ticket/99999999999999999999", [INT64]),
        ("table://ticket/1", [INT64, STRING]),
    ],
)
def test_a_uri_that_names_no_row_has_no_key_and_hides_no_other(uri: str, types: list[ColumnType]) -> None:
    good = row_uri("Ticket", (5,) if len(types) == 1 else (5, "a b"))

    assert list(row_keys(pa.chunked_array([[good, uri]]), types)) == [row_key(good, types)]
