"""Queues of texts and of UUIDs on real servers, and the rows beside them: read by Spark's tasks, key by key."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

import instep
from instep.container import Container
from instep.domain.jobs import JobState
from instep.domain.pending_queue import KeyKind
from instep.queues.open import open_queue
from instep.queues.queue_state import remember_reader
from tests.contracts.pending_texts import TEXTS
from tests.e2e.tables.test_queued_clickhouse import indexed, run
from tests.servers import clickhouse
from tests.servers.jars import jar
from tests.servers.postgres import running_postgres
from tests.sources.tables.clickhouse_tables import ask
from tests.sources.tables.sessions import session

pytestmark = pytest.mark.spark

PROJECT = """
name: items
targets: {{index: {{type: lance, uri: index}}}}
queues:
  fresh:
    on: {on}
    key: id
    keys: {kind}
    source: {{table: items}}
    covered_by: [{{table: done}}]
entities:
  Item:
    source: {source}
    key: id
    deleted: gone
    slice_rows: 1000
    changes: {{queue: fresh}}
"""


@dataclass(frozen=True)
class Place:
    """A database, with the tables of a project; `run` runs a statement about the rows of these keys, `mark` and
    `remove` are ones that change what is there.
    """

    on: str
    source: str
    run: Callable[[str, Sequence[str]], None]
    mark: str
    remove: str


def _in_clickhouse(folder: Path, kind: KeyKind) -> Iterator[Place]:
    with clickhouse.running(folder) as address:
        of = {KeyKind.TEXT: "String", KeyKind.UUID: "UUID"}[kind]

        def run(statement: str, values: Sequence[str]) -> None:
            """In hexadecimal: there are quotation marks in them, and worse."""
            texts = ", ".join(f"'{each.encode().hex()}'" for each in values)
            id_of = f"CAST(unhex(hex), '{of}')"
            rows = f"(SELECT {id_of} AS id FROM (SELECT arrayJoin([{texts}]) AS hex))"
            ask(address, statement.format(rows=rows))

        ask(address, f"CREATE TABLE items (id {of}, gone Bool) ENGINE = MergeTree ORDER BY id")
        ask(address, f"CREATE TABLE done (id {of}) ENGINE = MergeTree ORDER BY id")
        these = "WHERE id IN (SELECT id FROM {rows}) SETTINGS mutations_sync = 1"
        yield Place(
            on=f"{address.replace('http', 'clickhouse')}/default",
            source=f"{{type: clickhouse, uri: '{address}', table: items}}",
            run=run,
            mark=f"ALTER TABLE items UPDATE gone = true {these}",
            remove=f"ALTER TABLE items DELETE {these}",
        )


def _in_postgres(folder: Path, kind: KeyKind) -> Iterator[Place]:
    jar("postgresql").needed()
    server = running_postgres()
    name = f"queued_{kind}_{uuid.uuid4().hex[:8]}"
    server.execute(f"CREATE DATABASE {name}")
    index = 'id COLLATE "C"' if kind is KeyKind.TEXT else "id"
    with psycopg.connect(server.url(name), autocommit=True) as connection:

        def run(statement: str, values: Sequence[str]) -> None:
            rows = f"(SELECT unnest(%(keys)s::text[])::{kind} AS id) AS named"
            connection.execute(statement.format(rows=rows), {"keys": list(values)})

        for table, more in (("items", ", gone boolean"), ("done", "")):
            connection.execute(f"CREATE TABLE {table} (id {kind}{more})")
            connection.execute(f"CREATE INDEX ON {table} ({index})")
        address = f"jdbc:postgresql://127.0.0.1:{server.port}/{name}"
        options = f"{{url: '{address}', user: {server.user}, password: '{server.password}'}}"
        these = "WHERE id IN (SELECT id FROM {rows})"
        yield Place(
            on=server.url(name),
            source=f"{{type: spark, format: jdbc, table: items, options: {options}}}",
            run=run,
            mark=f"UPDATE items SET gone = true {these}",
            remove=f"DELETE FROM items {these}",
        )


@pytest.fixture(params=[KeyKind.TEXT, KeyKind.UUID])
def kind(request: pytest.FixtureRequest) -> KeyKind:
    found: KeyKind = request.param
    return found


@pytest.fixture(params=[_in_clickhouse, _in_postgres])
def place(tmp_path: Path, request: pytest.FixtureRequest, kind: KeyKind) -> Iterator[Place]:
    yield from request.param(tmp_path, kind)


def _keys(kind: KeyKind) -> list[str]:
    """More than one condition can name, among them the hostile ones, in order."""
    if kind is KeyKind.UUID:
        return sorted(str(uuid.uuid5(uuid.NAMESPACE_URL, str(number))) for number in range(2_500))
    return sorted([*TEXTS, *(f"é'{number:05d} " for number in range(2_500))])


def test_keys_go_from_a_server_to_the_index_and_are_acknowledged(tmp_path: Path, place: Place, kind: KeyKind) -> None:
    (tmp_path / "instep.yaml").write_text(PROJECT.format(on=place.on, kind=kind, source=place.source))
    keys = _keys(kind)
    covered, wanted = keys[3::50], [each for at, each in enumerate(keys) if at % 50 != 3]
    project = instep.load(tmp_path).project
    with closing(open_queue(project, "fresh")) as queue, closing(Container(project, spark=session())) as container:
        queue.create()
        remember_reader(queue, switched=True)
        place.run("INSERT INTO items (id, gone) SELECT id, false FROM {rows}", keys)
        place.run("INSERT INTO done (id) SELECT id FROM {rows}", covered)
        assert queue.confirm(keys) == set(wanted)
        first = run(container)
        assert (first.state, len(first.plan.slices), first.counts.written) == (JobState.COMPLETED, 3, len(wanted))
        assert indexed(container, str) == wanted
        assert queue.confirm(keys) == set()
        assert run(container).state is None
        # A few keys, which are asked for by name: one that is new, one that is deleted, and one without a row.
        new, deleted, vanished = str(uuid.UUID(int=2**128 - 1)), wanted[0], wanted[5]
        place.run("INSERT INTO items (id, gone) SELECT id, false FROM {rows}", [new])
        place.run(place.mark, [deleted])
        queue.reopen([deleted, vanished])
        place.run(place.remove, [vanished])
        second = run(container)
        assert (second.counts.read, second.counts.written, second.counts.deleted) == (2, 1, 1)
        assert indexed(container, str) == sorted([*wanted[1:], new])
        assert queue.confirm([*keys, new]) == set()
