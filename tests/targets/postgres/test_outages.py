"""What becomes of a commit when the server or the connection dies, and that nothing said of it holds the password."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable

import psycopg
import pytest

from instep.domain.waves import Mark
from instep.errors import Away, InstepError, Transient, Unknown, UserError
from instep.postgres import connection
from instep.postgres.connection import Session
from instep.targets.postgres.target import PostgresTarget
from instep.testing.table_rows import SPECS, Edge, Node, edges, nodes, put, staged
from tests.servers.postgres import PostgresServer
from tests.targets.postgres.conftest import DATABASE

MARKS = [Mark("s", 1, b"done")]


@pytest.fixture
def index(target: PostgresTarget) -> str:
    target.create("Node__1", SPECS)
    put(target, "Node__1", Node(1, "old", 1), epoch=1, attempt="before")
    return "Node__1"


@pytest.fixture
def wave(target: PostgresTarget, index: str) -> Callable[[], int]:
    """A commit that may be sent again."""
    base = target.fence(index, 1)
    part = staged(target, index, base, Node(1, "new", 2), Edge(1, 2, 2))
    return lambda: target.commit(index, base=base, epoch=1, attempt="a", staged=[part], marks=MARKS)


def content(target: PostgresTarget, index: str) -> tuple[object, object, object]:
    return nodes(target, index), edges(target, index), target.committed(index, 0, ["s"])


OLD: tuple[object, object, object] = ({1: "old"}, {}, {})
NEW: tuple[object, object, object] = ({1: "new"}, {1: 2}, {"s": b"done"})


def disconnect_all(server: PostgresServer) -> None:
    server.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE application_name = 'instep' AND pid <> pg_backend_pid()"
    )


@pytest.mark.parametrize(
    "step", ["INSERT INTO {table}", "INSERT INTO {epochs}", "UPDATE {indexes}", "INSERT INTO {marks}"]
)
def test_a_connection_that_dies_in_mid_commit_undoes_all_of_it(
    server: PostgresServer,
    target: PostgresTarget,
    index: str,
    wave: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    met = _before(monkeypatch, step, lambda: disconnect_all(server))
    with pytest.raises(Transient, match="connection was lost"):
        wave()
    assert met == [step]
    assert content(target, index) == OLD
    assert wave() == wave()
    assert content(target, index) == NEW


def test_a_server_that_dies_in_mid_commit_loses_staged_rows_and_nothing_else(
    server: PostgresServer,
    target: PostgresTarget,
    index: str,
    wave: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _before(monkeypatch, "UPDATE {indexes}", server.kill)
    for _ in range(2):
        with pytest.raises(Transient, match=r"was lost|cannot be reached") as error:
            wave()
        assert server.password not in str(error.value)
    with pytest.raises(Away):
        target.check()
    server.restart()
    assert content(target, index) == OLD
    put(target, index, Node(1, "new", 2), Edge(1, 2, 2), epoch=1, attempt="b", marks=MARKS)
    assert content(target, index) == NEW


def test_a_connection_that_dies_at_its_commit_leaves_the_outcome_unknown(
    server: PostgresServer,
    target: PostgresTarget,
    index: str,
    wave: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Session, "_commit", _dies(server, commits=False))
        with pytest.raises(Unknown):
            wave()
    assert content(target, index) == OLD
    wave()
    assert content(target, index) == NEW


def test_a_lost_answer_to_a_commit_is_looked_up_by_its_attempt(
    server: PostgresServer,
    target: PostgresTarget,
    index: str,
    wave: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Session, "_commit", _dies(server, commits=True))
        with pytest.raises(Unknown):
            wave()
    assert content(target, index) == NEW
    put(target, index, Node(1, "newer", 2), epoch=1, attempt="next")
    wave()
    assert nodes(target, index) == {1: "newer"}


def test_idle_connections_that_broke_are_replaced_silently(
    server: PostgresServer, target: PostgresTarget, index: str
) -> None:
    disconnect_all(server)
    assert nodes(target, index) == {1: "old"}
    server.restart()
    assert nodes(target, index) == {1: "old"}


def _before(monkeypatch: pytest.MonkeyPatch, step: str, event: Callable[[], None]) -> list[str]:
    """The event happens once, before the first statement that begins so. Returns where it is noted."""
    run, met = Session.run, list[str]()

    def watched(self: Session, statement: str, *values: object, **parts: object) -> object:
        if statement.startswith(step) and not met:
            met.append(step)
            event()
        return run(self, statement, *values, **parts)  # type: ignore[arg-type]  # as it came

    monkeypatch.setattr(Session, "run", watched)
    return met


def _dies(server: PostgresServer, *, commits: bool) -> Callable[[Session], None]:
    commit = Session._commit

    def dying(self: Session) -> None:
        if commits:
            commit(self)
        disconnect_all(server)
        commit(self)

    return dying


# -- what is said ------------------------------------------------------------------------------


def test_the_password_is_never_shown(server: PostgresServer, target: PostgresTarget, index: str) -> None:
    writer = target.writer(index, 1)
    for each in (target, target.place, writer, target.place.address):
        assert server.password not in repr(each) + str(each)
    assert target.shown == f"postgresql://127.0.0.1:{server.port}/{DATABASE}"
    assert pickle.loads(pickle.dumps(target)) == target


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (lambda url, _: url.replace("hunter2", "secret2"), UserError, "refused the user or the password"),
        (lambda url, _: url.replace("instep:", "nobody7:"), UserError, "refused the user or the password"),
        (lambda url, _: url.replace(f"/{DATABASE}", "/missing"), UserError, "no such database"),
        (lambda url, port: url.replace(f":{port}/", f":{closed_port()}/"), Transient, "cannot be reached"),
        (lambda url, _: f"{url}?nonsense=1", UserError, "option"),
        (lambda url, _: f"{url}?sslmode=require", InstepError, "SSL"),
    ],
)
def test_a_wrong_address_is_explained_without_secrets(
    server: PostgresServer, change: Callable[[str, int], str], error: type[InstepError], says: str
) -> None:
    wrong = PostgresTarget(change(server.url(DATABASE), server.port))
    with pytest.raises(error, match=says) as found:
        wrong.exists("Node__1")
    assert "s3cret" not in str(found.value)
    assert "nobody7" not in str(found.value)
    with pytest.raises(UserError):
        wrong.check()


@pytest.mark.parametrize(
    "uri", ["postgresql://u:s3cret@h", "mysql://u:s3cret@h/d", "s3cret", "postgresql://u:s3cret/d"]
)
def test_an_address_that_is_not_understood_is_not_repeated(uri: str) -> None:
    with pytest.raises(UserError) as found:
        PostgresTarget(uri)
    assert "s3cret" not in str(found.value)


def test_check_names_missing_rights(server: PostgresServer, target: PostgresTarget) -> None:
    target.check()
    server.execute("DROP ROLE IF EXISTS reader", database=DATABASE)
    server.execute("CREATE ROLE reader LOGIN PASSWORD 'r3ader'", database=DATABASE)
    server.execute(f'GRANT USAGE ON SCHEMA "{target.schema}" TO reader', database=DATABASE)
    reader = PostgresTarget(server.url(DATABASE, user="reader", password="r3ader"), target.schema)
    for each in (reader, PostgresTarget(reader.uri, "not there")):
        with pytest.raises(UserError, match=r"(?s)may not do this.*GRANT"):
            each.check()
    server.execute("DROP OWNED BY reader; DROP ROLE reader", database=DATABASE)


def test_a_server_that_is_too_old_is_refused(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_VERSION", 990_000)
    with pytest.raises(UserError, match="PostgreSQL 18 is too old"):
        PostgresTarget(server.url("postgres")).check()


def test_a_database_that_does_not_hold_every_text_is_refused(server: PostgresServer) -> None:
    server.execute("DROP DATABASE IF EXISTS ascii")
    server.execute("CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0")
    with pytest.raises(UserError, match="SQL_ASCII"):
        PostgresTarget(server.url("ascii")).check()


def test_errors_of_rows_do_not_repeat_values(server: PostgresServer, target: PostgresTarget) -> None:
    """An error of the driver may hold values: it is no part of ours."""
    with target.place.session() as session, pytest.raises(UserError) as found:
        session.run("SELECT 1 / (%s - 7)", 7)
    assert found.value.__cause__ is None
    assert found.value.__suppress_context__
    assert not isinstance(found.value, psycopg.Error)
