"""One project for all tests that only read it."""

from __future__ import annotations

import pytest

from instep.app import Instep
from tests.retrievers.notes import indexed


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Instep:
    return indexed(tmp_path_factory.mktemp("notes"))
