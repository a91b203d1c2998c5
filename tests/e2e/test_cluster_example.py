"""The example whose executor and worker are killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster" / "run.py"


@pytest.mark.long
@pytest.mark.spark
def test_the_cluster_loses_an_executor_and_a_worker_and_no_document() -> None:
    command = [sys.executable, str(EXAMPLE), "--documents", "6000"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("of 6,000 documents are done") == 2, "both were killed in the middle of the work"
    assert "In the files 6,000 documents, in the index 6,000\n0 lost, 0 double or stale\n" in done.stdout
