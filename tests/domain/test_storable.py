"""Texts that every database takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from instep.domain.storable import is_storable, storable, storable_key

#: Half characters and NUL among them.
ANY = st.text(st.characters(categories=["L", "Z", "Cc", "Cs", "So"]), max_size=120)


@given(ANY, ANY)
def test_keys_that_differ_stay_different(one: str, other: str) -> None:
    first, second = storable_key(one, 80), storable_key(other, 80)
    assert (first == second) is (one == other)
    assert len(first) <= 80
    assert is_storable(first)
    first.encode()
    assert storable_key(first, 80) == first


@given(ANY)
def test_texts_to_be_read_are_as_long_as_before(text: str) -> None:
    assert is_storable(storable(text))
    assert len(storable(text)) == len(text)
    assert (storable(text) == text) is is_storable(text)
