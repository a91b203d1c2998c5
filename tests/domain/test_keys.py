"""Keys: one form, one order, and a text that loses nothing. Golden texts must never change."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.keys import (
    INT64_MAX,
    INT64_MIN,
    VERSION,
    Key,
    KeyKind,
    KeysDiffer,
    KeyTextError,
    KeyValueError,
    NullInKey,
    decode_bound,
    decode_key,
    encode_bound,
    encode_key,
    key_of,
)
from tests.domain.key_strategies import VALUES, any_key, several

MOMENT = datetime(2026, 5, 8, 12, 30, 0, 7, tzinfo=UTC)

GOLDEN = [
    (key_of(42), '{"v":1,"key":[["int64","42"]]}'),
    (key_of(INT64_MIN, INT64_MAX), '{"v":1,"key":[["int64","-9223372036854775808"],["int64","9223372036854775807"]]}'),
    (key_of("158/", 7), '{"v":1,"key":[["string","158/"],["int64","7"]]}'),
    (key_of('é"\x00'), '{"v":1,"key":[["string","\\u00e9\\"\\u0000"]]}'),
    (key_of(b"\x00\xff"), '{"v":1,"key":[["bytes","00ff"]]}'),
    (key_of(True), '{"v":1,"key":[["bool",true]]}'),
    (key_of(date(2026, 5, 8)), '{"v":1,"key":[["date","2026-05-08"]]}'),
    (key_of(MOMENT), '{"v":1,"key":[["timestamp","2026-05-08T12:30:00.000007Z"]]}'),
    (key_of(datetime(1, 1, 1, tzinfo=UTC)), '{"v":1,"key":[["timestamp","0001-01-01T00:00:00.000000Z"]]}'),
    (key_of(Decimal("-1.50")), '{"v":1,"key":[["decimal","-1.5"]]}'),
]


@pytest.mark.parametrize(("key", "text"), GOLDEN)
def test_the_text_of_a_key(key: Key, text: str) -> None:
    assert encode_key(key) == text
    assert decode_key(text) == key


@given(any_key)
def test_the_text_is_exact(key: Key) -> None:
    text = encode_key(key)
    assert text.isascii()
    again = decode_key(text)
    assert again == key
    assert again.kinds == key.kinds
    assert encode_key(again) == text


@given(several(2))
def test_texts_are_equal_exactly_when_the_keys_are(keys: list[Key]) -> None:
    first, second = keys
    assert (encode_key(first) == encode_key(second)) == (first == second) == (hash(first) == hash(second))


def test_an_open_end_is_stored_as_nothing() -> None:
    assert encode_bound(None) == ""
    assert decode_bound("") is None
    assert decode_bound(encode_bound(key_of(0))) == key_of(0)
    assert decode_bound(encode_bound(key_of(""))) == key_of("")


@given(several(3))
def test_the_order_is_total(keys: list[Key]) -> None:
    a, b, c = keys
    assert (a < b) + (a == b) + (a > b) == 1
    assert (a <= b) == (not a > b)
    assert (a >= b) == (not a < b)
    if a <= b <= c:
        assert a <= c


@given(several(2))
def test_the_first_columns_have_the_order_of_the_whole(keys: list[Key]) -> None:
    low, high = sorted(keys)
    for columns in range(1, len(low) + 1):
        assert low.prefix(columns) <= high.prefix(columns)


@given(VALUES[KeyKind.STRING], VALUES[KeyKind.STRING])
def test_strings_compare_as_their_utf8_bytes(first: str, second: str) -> None:
    """What Spark, ClickHouse and `COLLATE "C"` do; Java's own order of strings and most collations do not."""
    assert (key_of(first) < key_of(second)) == (first.encode() < second.encode())


@given(st.uuids(), st.uuids())
def test_uuids_are_text_with_the_order_of_their_bytes(first: uuid.UUID, second: uuid.UUID) -> None:
    assert (key_of(first) < key_of(second)) == (first.bytes < second.bytes)
    assert key_of(first) == key_of(str(first))


def test_texts_equal_under_a_collation_are_distinct_ordered_keys() -> None:
    # "é" precomposed and decomposed; trailing space; case. U+FFFD is before U+1F600, unlike in UTF-16.
    ordered = ["B", "a", "a ", "e\u0301", "é", "\ufffd", "\U0001f600"]
    keys = [key_of(text) for text in ordered]
    assert all(before < after for before, after in pairwise(keys))
    assert len(set(keys)) == len(ordered)


def test_keys_of_different_columns_have_no_order() -> None:
    for other in (key_of("1"), key_of(True), key_of(Decimal(1)), key_of(1, 1)):
        assert key_of(1) != other
        with pytest.raises(KeysDiffer, match="int64"):
            assert key_of(1) < other
    with pytest.raises(KeysDiffer, match="no first 2"):
        key_of(1).prefix(2)


def test_a_null_is_refused_by_name() -> None:
    with pytest.raises(NullInKey, match="column 2 of the key is null"):
        key_of(1, None)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (INT64_MAX + 1, "int64"),
        (INT64_MIN - 1, "int64"),
        (1.5, "float"),
        ([1], "list"),
        ("\ud800", "Unicode"),
        (datetime(2026, 5, 8, 12), "zone"),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), "9999"),
        (Decimal("NaN"), "NaN"),
        (Decimal("-Infinity"), "Infinity"),
        (Decimal("1E+38"), "38 digits"),
        (Decimal("1E-39"), "38 digits"),
        (Decimal("9" * 20 + "." + "9" * 19), "38 digits"),
    ],
)
def test_an_invalid_key_value_is_refused_with_its_column(value: object, said: str) -> None:
    with pytest.raises(KeyValueError, match=f"column 2 of the key.*{said}"):
        key_of("a", value)


def test_a_key_has_columns() -> None:
    with pytest.raises(KeyValueError, match="at least one"):
        key_of()


def test_moments_are_compared_not_clocks_on_the_wall() -> None:
    """In the hour that comes twice, Python orders two times of one zone by their wall clock."""
    zone = ZoneInfo("Europe/Vienna")
    summer = datetime(2026, 10, 25, 2, 30, tzinfo=zone)
    winter = datetime(2026, 10, 25, 2, 10, fold=1, tzinfo=zone)
    assert winter < summer
    assert key_of(summer) < key_of(winter)
    assert key_of(summer) == key_of(datetime(2026, 10, 25, 0, 30, tzinfo=UTC))


@pytest.mark.parametrize(
    ("written", "kept"),
    [("1.0", "1"), ("-0.00", "0"), ("1E+5", "100000"), ("1E+37", "1" + "0" * 37), ("1E-38", "0." + "0" * 37 + "1")],
)
def test_a_decimal_has_one_form(written: str, kept: str) -> None:
    key = key_of(Decimal(written))
    assert key == key_of(Decimal(kept))
    assert json.loads(encode_key(key))["key"] == [["decimal", kept]]


def test_all_digits_of_a_decimal_stay() -> None:
    digits = Decimal("12345678901234567890123456789012345.678")
    assert decode_key(encode_key(key_of(digits))).values == (digits,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        "null",
        '{"v":1}',
        '{"v":1,"key":[]}',
        '{"v":1,"key":[["int64",7]]}',
        '{"v":1,"key":[["int64","07"]]}',
        '{"v":1,"key":[["int64","9223372036854775808"]]}',
        '{"v":1,"key":[["int64",null]]}',
        '{"v":1,"key":[["int32","7"]]}',
        '{"v":1,"key":[["bool","false"]]}',
        '{"v":1,"key":[["decimal","1.0"]]}',
        '{"v":1,"key":[["decimal","x"]]}',
        '{"v":1,"key":[["bytes","FF"]]}',
        '{"v":1,"key":[["date","20260508"]]}',
        '{"v":1,"key":[["timestamp","2026-05-08T12:30:00"]]}',
        '{"v":1,"key":[["timestamp","2026-05-08T12:30:00.000000+00:00"]]}',
        '{"v": 1, "key": [["int64", "7"]]}',
    ],
)
def test_a_text_that_was_not_written_here_is_refused(text: str) -> None:
    with pytest.raises(KeyTextError):
        decode_key(text)


def test_a_text_of_a_newer_form_is_refused_as_such() -> None:
    with pytest.raises(KeyTextError, match="newer"):
        decode_key(f'{{"v":{VERSION + 1},"key":[["int64","7"]]}}')


def test_a_key_is_shown_in_readable_text() -> None:
    assert str(key_of("158/", 7, Decimal("1.50"), date(2026, 5, 8))) == "('158/', 7, 1.5, '2026-05-08')"
