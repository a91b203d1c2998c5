"""Texts for people."""

from __future__ import annotations

import pytest

from instep.domain import texts
from instep.domain.texts import clause, cleaned, hidden, hide, redacted
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


def test_known_secrets_are_starred_out_the_longest_first_but_for_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_KNOWN", [])
    assert cleaned("hunter2 at sea") == "hunter2 at sea"
    hide(["hunter2", "hunter2-again", "sea", ""])
    hide(["line\n break"])
    assert cleaned("hunter2-again, hunter2 and line\n break at sea") == "***, *** and *** at sea"


def test_the_beginning_of_a_secret_where_a_text_was_cut_is_starred_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_KNOWN", [])
    hide(["hunter2-of-the-hill"])
    assert hidden("401 for hunter2-of-th… (mine.py:3)") == "401 for ***… (mine.py:3)"
    assert hidden("401 for hunte… and for ever…") == "401 for hunte… and for ever…"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:p@ss@host/db is away", "postgresql://host/db is away"),
        ("sv=2026&sig=aB%2Fc", "sv=2026&sig=***"),
        ("design=plain", "design=plain"),
    ],
)
def test_what_looks_like_a_secret_is_starred_out(text: str, shown: str) -> None:
    assert redacted(text) == shown
