"""The contract suite that we ship finds what is wrong with a target: each of these is wrong in one way."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from instep.testing.target import TargetContract
from tests.targets.wrong_table_targets import TABLE_TARGETS
from tests.targets.wrong_targets import TARGETS

#: What a third party writes, of the right target and of those that are wrong.
SUITE = """
from collections import Counter

import pytest

from instep.testing.ownership import DocumentOwnership
from instep.testing.table_target import TableTargetContract
from instep.testing.target import TargetContract
from instep.targets.lance import LanceTableTarget
from tests.doubles.memory_target import MemoryTarget
from tests.targets.wrong_table_targets import TABLE_TARGETS
from tests.targets.wrong_targets import TARGETS


class Given:
    @pytest.fixture
    def target(self):
        return self.made()

    def content(self, target, physical):
        return Counter((row["document_id"], row["text"]) for row in target.stored(physical))


for made in (MemoryTarget, *(wrong for wrong, _ in TARGETS.values())):
    for suite in (TargetContract, DocumentOwnership):
        name = f"Test{made.__name__}{suite.__name__}"
        globals()[name] = type(name, (Given, suite), {"made": made})


class GivenTables:
    @pytest.fixture
    def target(self, tmp_path):
        return self.made(str(tmp_path / "index"))


for made in (LanceTableTarget, *(wrong for wrong, _ in TABLE_TARGETS.values())):
    name = f"Test{made.__name__}TableTargetContract"
    globals()[name] = type(name, (GivenTables, TableTargetContract), {"made": made})
"""
ROOT = Path(__file__).parents[2]


def at(name: str, test: str) -> str:
    """The test of the suite, for the target of this name."""
    suite = "TargetContract" if hasattr(TargetContract, test) else "DocumentOwnership"
    return f"test_suite.py::Test{name}{suite}::{test}"


def at_table(name: str, test: str) -> str:
    return f"test_suite.py::Test{name}TableTargetContract::{test}"


def test_what_is_wrong_with_a_target_is_found_by_the_test_of_it(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    wrong = [at(name, test) for name, (_, test) in TARGETS.items()]
    wrong += [at_table(name, test) for name, (_, test) in TABLE_TARGETS.items()]
    right = [at("MemoryTarget", test) for _, test in TARGETS.values()]
    right += [at_table("LanceTableTarget", test) for _, test in TABLE_TARGETS.values()]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        [*command, *wrong, *right],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-2000:]
    assert "warning" not in done.stdout.splitlines()[-1], "the plug-in knows all marks"
    found = {each.partition("[")[0] for each in re.findall(r"^FAILED (\S+)", done.stdout, re.MULTILINE)}
    assert not found.intersection(right), "nothing is wrong with the right one"
    assert found == {*wrong}
