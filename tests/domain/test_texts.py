"""Texts for people."""

from __future__ import annotations

import pytest

from instep.domain.texts import clause
from instep.errors import UserError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the disk is full", "the disk is full"),
        (UserError("the disk is full", hint="Free some space."), "the disk is full. Free some space"),
        (UserError("no such folder", where="docs"), "docs: no such folder"),
        ("and so on…", "and so on…"),
    ],
)
def test_a_clause_is_one_line_without_a_full_stop(text: object, expected: str) -> None:
    assert clause(text) == expected
