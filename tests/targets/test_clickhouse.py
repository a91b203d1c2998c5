"""The ClickHouse target in process (chdb): the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.targets.clickhouse import ClickHouseTarget
from tests.contracts.table_target import TableTargetContract


class TestEmbedded(TableTargetContract):
    @pytest.fixture
    def target(self, tmp_path: Path) -> ClickHouseTarget:
        return ClickHouseTarget(str(tmp_path / "index"))
