"""Schedules leave their whole worlds behind, in cycles: what is imported is not looked through for each of them."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="package")
def _collected_seldom() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    usual = gc.get_threshold()
    gc.set_threshold(50_000, 20, 100)
    yield
    gc.set_threshold(*usual)
    gc.unfreeze()
