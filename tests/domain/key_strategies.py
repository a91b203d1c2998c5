"""Keys for properties: every kind, with the ends of each."""

from __future__ import annotations

from datetime import UTC
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from instep.domain.keys import INT64_MAX, INT64_MIN, Key, KeyKind

decimals = st.builds(
    lambda whole, scale: Decimal(whole).scaleb(-scale),
    st.integers(-(10**20), 10**20),
    st.integers(0, 15),
)

VALUES: dict[KeyKind, st.SearchStrategy[Any]] = {
    KeyKind.INT64: st.integers(INT64_MIN, INT64_MAX) | st.sampled_from([INT64_MIN, INT64_MAX]),
    KeyKind.STRING: st.text(st.characters(exclude_categories=["Cs"])),
    KeyKind.BYTES: st.binary(max_size=8),
    KeyKind.BOOL: st.booleans(),
    KeyKind.DATE: st.dates(),
    KeyKind.TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
    KeyKind.DECIMAL: decimals,
}

shapes = st.lists(st.sampled_from(list(KeyKind)), min_size=1, max_size=3)


def keys_of(shape: list[KeyKind]) -> st.SearchStrategy[Key]:
    return st.tuples(*(VALUES[kind] for kind in shape)).map(Key)


#: Keys of one shape each time.
def several(count: int) -> st.SearchStrategy[list[Key]]:
    return shapes.flatmap(lambda shape: st.lists(keys_of(shape), min_size=count, max_size=count))


any_key = shapes.flatmap(keys_of)
