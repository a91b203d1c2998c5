"""Documents in PostgreSQL: the contract, and what is PostgreSQL's own."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest

from instep.targets.port import DocumentTarget
from instep.targets.postgres.documents import PostgresDocuments
from tests.contracts.target import TargetContract
from tests.contracts.target_rows import DIMENSIONS, Content, expected, put
from tests.servers.postgres import PostgresServer
from tests.targets.postgres.conftest import DATABASE

_numbers = itertools.count(1)


@pytest.fixture
def target(server: PostgresServer) -> Iterator[PostgresDocuments]:
    schema = f'docs "{next(_numbers)}"%s'
    yield PostgresDocuments(server.url(DATABASE), schema)
    quoted = schema.replace('"', '""')
    server.execute(f'DROP SCHEMA IF EXISTS "{quoted}" CASCADE', database=DATABASE)


class TestPostgresDocuments(TargetContract):
    def content(self, target: DocumentTarget, physical: str) -> Content:
        assert isinstance(target, PostgresDocuments)
        with target.place.session() as session:
            return Counter(session.run("SELECT document_id, text FROM {table}", table=session.name(physical)))
