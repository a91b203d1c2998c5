"""Tests that share a Spark run in one process."""

from __future__ import annotations

from tests.groups import group
from tests.proof import ROOT, depends

_SESSION = "tests/sources/tables/sessions.py"


def test_files_that_use_the_tests_session_of_spark_are_one_group() -> None:
    """Else another process starts a Spark of its own for them."""
    texts = {each: each.read_text(encoding="utf-8") for each in (ROOT / "tests").rglob("test_*.py")}
    marked = [each.relative_to(ROOT).as_posix() for each, text in texts.items() if "mark.spark" in text]
    users = [each for each in marked if not each.startswith("tests/engine/") and _SESSION in depends(each)]
    assert len(users) > 5
    # Those of lakes start a Spark with libraries of theirs.
    assert [each for each in users if group(each.removeprefix("tests/")) not in ("spark", "lakes")] == []
