"""`instep diff` on PostgreSQL."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.contracts.chunk_identity import FRONT, PARAGRAPHS, ChunkIdentityContract
from tests.contracts.document_diff import DiffContract
from tests.jobs.projects import Home
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

    def stored(self, place: Home) -> dict[object, object]:
        """Of each row the transaction that wrote it, and where it stands, as PostgreSQL itself says."""
        table = f'{self._schema}."{Tamperer(place).physical}"'
        rows = self._server.execute(f"SELECT chunk_id, xmin::text, ctid::text FROM {table}", database=DATABASE)
        return {chunk_id: place_ for chunk_id, *place_ in rows}

    def test_postgres_itself_says_that_rows_behind_a_new_paragraph_are_left_alone(self, paragraphs: Home) -> None:
        before = self.stored(paragraphs)
        self.write(paragraphs, [FRONT, *PARAGRAPHS])
        paragraphs.run()
        after = self.stored(paragraphs)
        assert (len(before), len(after)) == (16, 17)
        assert {key: after[key] for key in before} == before
        self.write(paragraphs, [*PARAGRAPHS[:8], f"Again: {FRONT}", *PARAGRAPHS[9:]])
        paragraphs.run()
        left = self.stored(paragraphs)
        assert sum(before.get(key) == row for key, row in left.items()) == 15

    def lose(self, tamperer: Tamperer) -> None:
        """With the view that leads to it, without which PostgreSQL drops no table."""
        self._server.execute(f'DROP TABLE {self._schema}."{tamperer.physical}" CASCADE', database=DATABASE)
