"""What a corpus takes, measured with a small one; and what is said of sizes that were not run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import sizing


def test_a_size_that_was_not_run_is_on_the_line_through_the_largest_two() -> None:
    rows = sizing.rows_of({100_000: {"ledger": 21_000_000}, 1_000_000: {"ledger": 201_000_000}})
    assert rows == [["ledger", "21.0 MB", "201.0 MB", "200", "20.0 GB", "200.0 GB"]]
    assert sizing.line_through({1: 0, 10: 110, 20: 210}) == (10, 10)


def test_one_size_says_nothing_of_others() -> None:
    assert sizing.rows_of({1_000_000: {"ledger": 201_000_000}}) == [["ledger", "201.0 MB"]]


@pytest.mark.slow
@pytest.mark.long
def test_a_small_corpus_is_measured(tmp_path: Path) -> None:
    found = sizing.sizes(Path(sys.executable).parent, tmp_path / "sizing", 60_000)
    assert all(count > 0 for count in found.values()), found
    assert found[sizing.BASE] > 60_000 * 32, "an id for each"
