"""Amounts of things, for people."""

from __future__ import annotations

import pytest

from instep.domain.texts import amount


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 documents"), (1, "1 document"), (2, "2 documents"), (20_000, "20,000 documents")]
)
def test_one_is_singular_and_thousands_are_set_apart(number: int, said: str) -> None:
    assert amount(number, "document") == said
