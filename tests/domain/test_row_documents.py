from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import given

from instep.domain.columns import BOOL, BYTES, DATE, INT64, STRING, TIMESTAMP, ColumnType, decimal_type
from instep.domain.identity import bucket_of, canonical_uri, document_id
from instep.domain.keys import Key, KeyKind, key_of
from instep.domain.rows import row_key, row_uri

from .key_strategies import several

_TYPES = {
    KeyKind.INT64: INT64,
    KeyKind.STRING: STRING,
    KeyKind.BYTES: BYTES,
    KeyKind.BOOL: BOOL,
    KeyKind.DATE: DATE,
    KeyKind.TIMESTAMP: TIMESTAMP,
    KeyKind.DECIMAL: decimal_type(38, 9),
}


def types_of(key: Key) -> list[ColumnType]:
    return [_TYPES[kind] for kind in key.kinds]


#: Worked out by other means than Instep's: the URI, the start of the document's id, its bucket of 16.
GOLDEN = [
    (row_uri("Ticket", [4711]), "table://Ticket/4711", "doc_483590f0201a", 4),
    (row_uri("Page", [42, "a/b c", True]), "table://Page/42/a%2Fb%20c/true", "doc_891aa369ed3b", 4),
    (
        row_uri("Page", [datetime(2026, 1, 2, 3, 4, 5, 678901, UTC), date(2026, 1, 2)]),
        "table://Page/2026-01-02T03:04:05.678901Z/2026-01-02",
        "doc_1fba1653c7e1",
        1,
    ),
    (
        row_uri("Page", [b"\x00\xff", Decimal("1.500"), "é", ""]),
        "table://Page/00ff/1.5/%C3%A9/",
        "doc_5e9e88774eeb",
        2,
    ),
    (row_uri("Page", [None, "(null)"]), "table://Page/(null)/%28null%29", "doc_6ff5c815f1ba", 9),
]


@pytest.mark.parametrize(("made", "uri", "identity", "bucket"), GOLDEN)
def test_golden_uris_ids_and_buckets(made: str, uri: str, identity: str, bucket: int) -> None:
    assert made == uri
    assert document_id(canonical_uri(uri)).startswith(identity)
    assert bucket_of(document_id(canonical_uri(uri)), 16) == bucket


@given(several(2))
def test_a_key_is_read_back_from_its_uri_and_two_keys_have_two(pair: list[Key]) -> None:
    one, other = pair
    uri = row_uri("Ticket", one.values)
    assert document_id(canonical_uri(uri)) == document_id(canonical_uri(uri + "?signed=1"))
    assert row_key(uri, types_of(one)) == one
    assert (row_uri("Ticket", other.values) == uri) == (one == other)


@pytest.mark.parametrize("uri", ["table://T/(null)", "table://T/x", "table://T/1/2", "table://T"])
def test_a_uri_that_names_no_row_of_such_columns(uri: str) -> None:
    assert row_key(uri, [INT64]) is None
    assert row_key("table://T/1", [INT64]) == key_of(1)
