"""Packed values come back, whatever their size, and from what the usual compressor made too."""

from __future__ import annotations

import json
import zlib

from hypothesis import given
from hypothesis import strategies as st

from instep.domain.storable import pack, unpack

texts = st.lists(st.text(max_size=20))


@given(texts, st.sampled_from([1, 40, 400]))
def test_a_packed_value_unpacks_to_itself(value: list[str], times: int) -> None:
    assert unpack(pack(value * times)) == value * times


@given(texts)
def test_values_packed_with_the_default_window_are_read(value: list[str]) -> None:
    assert unpack(zlib.compress(json.dumps(value).encode())) == value
