"""`instep diff` on PostgreSQL."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.contracts.chunk_identity import ChunkIdentityContract
from tests.contracts.document_diff import DiffContract
from tests.jobs.tampering import Tamperer
from tests.servers.postgres import PostgresServer
from tests.targets.postgres.conftest import DATABASE


@pytest.mark.proof
class TestPostgres(ChunkIdentityContract, DiffContract):
    @pytest.fixture(autouse=True)
    def _given(self, server: PostgresServer) -> None:
        self._server = server

    def setting(self, folder: Path) -> str:
        self._schema = "diff_" + hashlib.sha256(str(folder).encode()).hexdigest()[:8]
        return f"{{type: postgres, uri: '{self._server.url(DATABASE)}', schema: {self._schema}}}"

    def lose(self, tamperer: Tamperer) -> None:
        """With the view that leads to it, without which PostgreSQL drops no table."""
        self._server.execute(f'DROP TABLE {self._schema}."{tamperer.physical}" CASCADE', database=DATABASE)
