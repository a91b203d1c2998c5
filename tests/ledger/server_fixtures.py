"""What tests of ledgers on a real server begin with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import ClassVar

import pytest
from sqlalchemy import Engine

from instep.ledger.dialects.server import Server as LedgerServer
from instep.ledger.ledger import Ledger
from instep.ledger.open_server import server_at
from tests.servers.ledgers import LedgerDatabase
from tests.servers.process import Server

_numbers = itertools.count(1)


class ServerFixtures:
    """Give the fixture `database`."""

    #: How the server makes a user who may log in, and nothing else.
    make_guest: ClassVar[tuple[str, ...]]
    #: A claim is one statement by itself here: when the connection is lost, it is unknown whether it was done.
    claims_alone: ClassVar[bool]
    #: How a session is told to wait for a lock as briefly as possible.
    shorten_lock_wait: ClassVar[str]
    #: How texts are compared, and which type a long one has.
    collation: ClassVar[str]
    long_text: ClassVar[str]
    #: How the database says in which schema its tables are.
    schema: ClassVar[str]

    @pytest.fixture
    def database(self) -> LedgerDatabase:
        raise NotImplementedError

    @pytest.fixture
    def server(self, database: LedgerDatabase) -> Iterator[Server]:
        """To be killed: it is up again for the next test."""
        yield database.server
        database.server.revive()

    @pytest.fixture
    def fresh(self, database: LedgerDatabase) -> Iterator[Callable[[], str]]:
        """Names of new, empty databases."""
        names: list[str] = []

        def another() -> str:
            names.append(f"fresh_{next(_numbers)}")
            database.server.execute(f"CREATE DATABASE {names[-1]}")
            return names[-1]

        yield another
        for name in names:
            database.server.execute(f"DROP DATABASE {name}")

    @pytest.fixture
    def ledger(self, database: LedgerDatabase) -> Iterator[Ledger]:
        opened = database.open()
        yield opened
        opened.close()

    @pytest.fixture
    def watched(self, database: LedgerDatabase) -> Iterator[tuple[Ledger, Engine]]:
        """A ledger and the engine below it."""
        server = server_at(database.address)
        engine = server.engine(read_only=False)
        yield Ledger(engine, server.dialect(None)), engine
        engine.dispose()

    def short_lock_wait(self, database: LedgerDatabase) -> LedgerServer:
        """A server whose silence is not borne for long."""
        raise NotImplementedError
