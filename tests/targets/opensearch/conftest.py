"""One server for all of these tests: a real one, started here or named by OPENSEARCH_URL."""

from __future__ import annotations

import os

import pytest

from tests.servers.opensearch import running_opensearch


@pytest.fixture(scope="session")
def opensearch() -> str:
    return os.environ.get("OPENSEARCH_URL") or running_opensearch().url()
