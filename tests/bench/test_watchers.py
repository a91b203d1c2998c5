"""The benchmark of watchers, small."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.watchers import rows, watch


@pytest.mark.long
def test_watchers_hear_of_a_job_that_another_process_works_on(tmp_path: Path) -> None:
    found = watch(tmp_path, slices=5_000, clients=3, seconds=3.0)
    assert len(found.heard) == 3
    assert all(each.messages >= 2 for each in found.heard)
    assert [row[-1] for row in rows(found)][1] in {"met", "MISSED"}
