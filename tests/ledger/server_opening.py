"""Opening a ledger on any real server: its schema, and what the user can mend."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest
from sqlalchemy import Engine, Text, TypeDecorator, inspect, text

from instep.errors import InstepError, UserError
from instep.ledger.column_types import QueueKeyBytes
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from instep.ledger.open_server import server_at
from instep.ledger.schema import upgrade, version_of
from instep.ledger.tables import HEAD, metadata
from instep.servers.address import server_address
from instep.system import SystemClock
from tests.contracts.ledger import (
    START,
    VirtualClock,
    register,
)
from tests.ledger.old_ledger import (
    check_held,
    check_migrated,
    check_requests,
    make_held_numbers,
    make_old_ledger,
    make_old_requests,
)
from tests.ledger.server_fixtures import ServerFixtures
from tests.ledger.statements import watching
from tests.servers.ledgers import LedgerDatabase
from tests.servers.process import Server


def _open_all(urls: list[str]) -> int:
    for url in urls:
        open_ledger(url, clock=SystemClock()).close()
    return len(urls)


class ServerOpening(ServerFixtures):
    def test_reading_a_ledger_that_does_not_exist_makes_nothing(
        self, database: LedgerDatabase, fresh: Callable[[], str]
    ) -> None:
        url = database.server.url(fresh())
        absent = [open_ledger(url, clock=VirtualClock(), read_only=True) for _ in range(2)]
        assert [each.jobs.newest() for each in absent] == [[], []]
        assert absent[0].naming() != absent[1].naming(), "the first one was kept"
        open_ledger(url, clock=VirtualClock()).close()
        reader = open_ledger(url, clock=VirtualClock(), read_only=True)
        assert isinstance(reader, Ledger)
        assert reader.jobs.newest() == []
        with pytest.raises(InstepError):
            register(reader, "ann")
        assert reader.workers.all() == []
        reader.close()

    def test_a_database_of_something_else_is_refused_and_left_alone(
        self, database: LedgerDatabase, fresh: Callable[[], str]
    ) -> None:
        name = fresh()
        database.server.execute("CREATE TABLE recipes (name VARCHAR(9))", database=name)
        for read_only in (False, True):
            with pytest.raises(UserError, match="not an Instep ledger"):
                open_ledger(database.server.url(name), clock=VirtualClock(), read_only=read_only)
        assert database.server.execute("SELECT name FROM recipes", database=name) == []

    def test_a_ledger_that_is_brought_up_while_it_is_looked_at_is_nothing_else(
        self, database: LedgerDatabase, fresh: Callable[[], str]
    ) -> None:
        url = database.server.url(fresh())
        engine = server_at(server_address(url)).engine(read_only=False)
        looks: list[str] = []

        def others_are_quicker(statement: str, _: Any) -> None:
            looks.append(statement)
            if len(looks) == 2:
                open_ledger(url, clock=VirtualClock()).close()

        with engine.connect() as connection, watching(engine, others_are_quicker):
            assert version_of(connection, "here") in (None, HEAD)
        engine.dispose()

    def test_a_ledger_of_another_instep_is_refused_where_it_must_be(
        self, database: LedgerDatabase, fresh: Callable[[], str]
    ) -> None:
        name = fresh()
        url = database.server.url(name)
        open_ledger(url, clock=VirtualClock()).close()
        database.server.execute("UPDATE alembic_version SET version_num = '0099'", database=name)
        for read_only in (False, True):
            with pytest.raises(UserError, match="newer Instep"):
                open_ledger(url, clock=VirtualClock(), read_only=read_only)
        database.server.execute("UPDATE alembic_version SET version_num = '0001'", database=name)
        with pytest.raises(UserError, match="older Instep") as raised:
            open_ledger(url, clock=VirtualClock(), read_only=True)
        assert "instep ledger migrate" in str(raised.value)

    @pytest.mark.proof
    def test_processes_that_bring_one_ledger_up_at_once_all_succeed(
        self, database: LedgerDatabase, fresh: Callable[[], str]
    ) -> None:
        urls = [database.server.url(fresh()) for _ in range(3)]
        with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
            assert list(pool.map(_open_all, [urls] * 3)) == [3] * 3

    def test_a_ledger_of_the_first_schema_comes_over_with_its_data(
        self, database: LedgerDatabase, fresh: Callable[[], str]
    ) -> None:
        address = server_address(database.server.url(fresh()))
        server = server_at(address)
        engine = server.engine(read_only=False)
        make_old_ledger(engine)
        open_ledger(database.server.url(address.database), clock=VirtualClock()).close()
        check_migrated(Ledger(engine, server.dialect(VirtualClock(START + 40))))
        self._check_texts(engine)
        engine.dispose()

    def test_keys_that_consumers_have_in_hand_come_over(
        self, database: LedgerDatabase, fresh: Callable[[], str]
    ) -> None:
        address = server_address(database.server.url(fresh()))
        server = server_at(address)
        engine = server.engine(read_only=False)
        make_held_numbers(engine)
        open_ledger(database.server.url(address.database), clock=VirtualClock()).close()
        check_held(Ledger(engine, server.dialect(VirtualClock(START))))
        engine.dispose()

    def test_open_requests_of_handlers_come_over_as_wants(
        self, database: LedgerDatabase, fresh: Callable[[], str]
    ) -> None:
        address = server_address(database.server.url(fresh()))
        server = server_at(address)
        engine = server.engine(read_only=False)
        make_old_requests(engine)
        open_ledger(database.server.url(address.database), clock=VirtualClock()).close()
        check_requests(Ledger(engine, server.dialect(VirtualClock(START))))
        engine.dispose()

    def test_an_empty_ledger_of_the_first_schema_comes_over(
        self, database: LedgerDatabase, fresh: Callable[[], str]
    ) -> None:
        address = server_address(database.server.url(fresh()))
        engine = server_at(address).engine(read_only=False)
        upgrade(engine, "0001")
        engine.dispose()
        ledger = open_ledger(database.server.url(address.database), clock=VirtualClock())
        assert ledger.jobs.newest() == []
        ledger.close()
        versions = database.server.execute("SELECT version_num FROM alembic_version", database=address.database)
        assert list(versions) == [(HEAD,)]

    # What the user can mend.

    def _refusal(self, url: str, *secrets: str) -> str:
        with pytest.raises(UserError) as refused:
            open_ledger(url, clock=VirtualClock())
        chain: BaseException | None = refused.value
        while chain is not None:
            assert not any(secret in f"{chain!s} {chain!r}" for secret in ("s3cret", *secrets)), chain
            chain = None if chain.__suppress_context__ and chain.__cause__ is None else chain.__cause__
        return str(refused.value)

    def test_a_wrong_password_is_reported(self, database: LedgerDatabase) -> None:
        for url in (
            database.server.url(password="s3cret-too"),
            database.server.url(user="mallory"),
            database.url.replace(f":{Server.password}", ""),
        ):
            said = self._refusal(url)
            assert "refused the user or the password" in said
            assert f"127.0.0.1:{database.server.port}/ledger" in said
            assert "mallory" not in said

    def test_an_unknown_database_is_reported(self, database: LedgerDatabase) -> None:
        assert "no such database" in self._refusal(database.server.url("atlantis"))

    def test_a_server_that_does_not_listen_is_named(self, database: LedgerDatabase) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))  # taken, without a listener
            port = probe.getsockname()[1]
            said = self._refusal(database.url.replace(f":{database.server.port}/", f":{port}/"))
        assert f"127.0.0.1:{port}/ledger: the ledger cannot be reached" in said
        assert "Connection refused" in said

    def test_a_host_that_does_not_exist_is_named(self, database: LedgerDatabase) -> None:
        said = self._refusal(database.url.replace("127.0.0.1", "no-such-host.invalid"))
        assert "no-such-host.invalid" in said
        assert "cannot be reached" in said

    def test_an_unknown_option_is_named(self, database: LedgerDatabase) -> None:
        assert "colour" in self._refusal(f"{database.url}?colour=s3cret")

    def test_a_user_without_rights_is_refused_with_the_reason(
        self, database: LedgerDatabase, fresh: Callable[[], str]
    ) -> None:
        name = fresh()
        for statement in self.make_guest:
            database.server.execute(statement)
        try:
            said = self._refusal(database.server.url(name, user="guest", password="guest-s3cret"))
        finally:
            database.server.execute("DROP USER guest")
        assert "may not do this" in said

    def _check_texts(self, engine: Engine) -> None:
        """All are compared by their bytes, and tables refer to each other as before."""
        columns = text(
            "SELECT table_name, column_name, data_type, collation_name FROM information_schema.columns "
            f"WHERE table_schema = {self.schema} AND collation_name IS NOT NULL"
        )
        with engine.connect() as connection:
            found = {(row[0], row[1]): (row[2], row[3]) for row in connection.execute(columns)}
        inspector = inspect(engine)
        for table in metadata.sorted_tables:
            for column in table.c:
                if isinstance(column.type, TypeDecorator) and not isinstance(column.type, QueueKeyBytes):
                    kind, collation = found[table.name, column.name]
                    assert collation == self.collation, str(column)
                    assert (kind == self.long_text) is isinstance(column.type.impl_instance, Text), str(column)
            there = {each["name"] for each in inspector.get_foreign_keys(table.name)}
            assert len(there) == len(table.foreign_key_constraints), table.name
