"""The benchmark of large corpora, with a small one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import scale


@pytest.mark.slow
@pytest.mark.long
def test_a_small_corpus_is_measured_on_both_sides(tmp_path: Path) -> None:
    found = scale.sides(Path(sys.executable).parent, tmp_path, 500, 1)
    assert {case for case, side in found if side == scale.BARE} == {
        "first run",
        "nothing changed",
        "1 in 1,000 changed",
    }
    assert [found[case, scale.BARE][0].output.strip() for case, side in found if side == scale.BARE] == [
        "500",
        "0",
        "1",
    ]
    assert [row[:2] for row in scale.rows_of(found, 500)] == [list(key) for key in found]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.spark
def test_a_small_corpus_on_spark_is_measured_beside_a_bare_join(tmp_path: Path) -> None:
    found = scale.sides(Path(sys.executable).parent, tmp_path, 500, 1, "spark")
    bare = {case: runs[0].output.strip() for (case, side), runs in found.items() if side == scale.BARE}
    assert {case: said.splitlines()[-1] for case, said in bare.items()} == {"nothing changed": "0", scale.CHANGED: "1"}
    (first,), (nothing,) = (found[case, scale.INSTEP] for case in ("first run", "nothing changed"))
    assert first.own_rss < first.peak_rss
    assert not nothing.jvm_rss  # So little is compared without one.
    assert all(runs[0].jvm_rss for (case, side), runs in found.items() if side == scale.BARE)
    assert [row[:2] for row in scale.spark_rows_of(found)] == [list(key) for key in found]
