"""These tests start and end Spark themselves: no other test has left one."""

from __future__ import annotations

import pytest

from tests.sources.tables import sessions


@pytest.fixture(scope="module", autouse=True)
def _no_spark() -> None:
    sessions.end()
