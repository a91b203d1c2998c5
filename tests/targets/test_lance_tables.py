"""The Lance target for tables: the contract, and what is Lance's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.targets.lance import LanceTableTarget
from tests.contracts.table_target import TableTargetContract


class TestLanceTables(TableTargetContract):
    @pytest.fixture
    def target(self, tmp_path: Path) -> LanceTableTarget:
        return LanceTableTarget(str(tmp_path / "index"))
