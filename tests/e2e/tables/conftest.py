from __future__ import annotations

from pathlib import Path

import pytest

from .shop import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Filled and declared, into Lance; not indexed yet."""
    made = Shop(tmp_path / "shop", "type: lance, uri: index")
    made.declare()
    made.fill()
    return made
