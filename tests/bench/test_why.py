"""The benchmark of `instep why`, with few rows: every answer is checked there."""

from __future__ import annotations

from pathlib import Path

from bench import why


def test_every_question_is_answered_rightly(tmp_path: Path) -> None:
    measured = why.measure(tmp_path, 200, 4)
    assert {what: len(times) for what, times in measured.items()} == {"a chunk_id": 4, "a source URI": 4}
