"""Durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.texts import LONGEST, duration_text, parse_duration


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("250ms", 250),
        ("30s", 30_000),
        ("15m", 900_000),
        ("15 min", 900_000),
        ("1.5h", 5_400_000),
        ("1h 30m", 5_400_000),
        (" 30d ", 30 * 86_400_000),
        ("2w", 14 * 86_400_000),
    ],
)
def test_units(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "1", "h", "-1h", "1y", "1h,2m", "1h ago", "٣h", "1e3s", "0h", "0.0001ms", "9" * 15 + "w"]
)
def test_an_invalid_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="must be a duration"):
        parse_duration(text)


@given(st.integers(1, LONGEST))
def test_a_duration_text_parses_to_the_same_duration(milliseconds: int) -> None:
    assert parse_duration(duration_text(milliseconds)) == milliseconds
