"""The commands of queues whose keys are texts or UUIDs, from `create` to `unpark`."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.clickhouse.location import Location
from instep.domain.key_leases import ATTEMPTS
from instep.ledger.key_leases import KeyFailure
from tests.cli.saying import said
from tests.doubles.clock import VirtualClock
from tests.servers.postgres import running_postgres

_schemas = itertools.count(1)

TEXTS = ["", "7", "A", "a", "a\nb", "it's", "é", "\U0001f600"]
UUIDS = [f"00000000-0000-4000-8000-0000000000{last}" for last in ("07", "0a", "b1", "ff")]


def sqlite_texts(folder: Path) -> str:
    with closing(sqlite3.connect(folder / "shop.db")) as database:
        database.execute("CREATE TABLE items (id TEXT PRIMARY KEY)")
        database.execute("CREATE TABLE done (id TEXT PRIMARY KEY)")
        database.executemany("INSERT INTO items VALUES (?)", [(each,) for each in TEXTS])
        database.commit()
    return "on: sqlite:///shop.db, keys: text"


def postgres(kind: str, keys: list[str]) -> str:
    server, schema = running_postgres(), f"kinds_{next(_schemas)}"
    server.execute(f"CREATE SCHEMA {schema}")
    of = 'text COLLATE "C"' if kind == "text" else kind
    values = ", ".join("('" + each.replace("'", "''") + "')" for each in keys)
    for each in (
        f"CREATE TABLE {schema}.items (id {of} PRIMARY KEY)",
        f"CREATE TABLE {schema}.done (id {of} PRIMARY KEY)",
        f"INSERT INTO {schema}.items VALUES {values}",
    ):
        server.execute(each, database="postgres")
    return f"on: '{server.url('postgres')}', schema: {schema}, keys: {kind}"


def chdb_uuids(folder: Path) -> str:
    (folder / "store").mkdir()
    with Location.of(str(folder / "store")).session() as session:
        session.command("CREATE TABLE items (id UUID) ENGINE = MergeTree ORDER BY id")
        session.command("CREATE TABLE done (id UUID) ENGINE = MergeTree ORDER BY id")
        values = ", ".join(f"('{each}')" for each in UUIDS)
        session.command(f"INSERT INTO items VALUES {values}")
    return "on: chdb:///store, keys: uuid"


@pytest.fixture(params=["sqlite", "postgres", "uuid", "chdb uuid"])
def keys(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All of them, in their order; the project is in the folder."""
    monkeypatch.chdir(tmp_path)
    makers: dict[str, Callable[[], str]] = {
        "sqlite": lambda: sqlite_texts(tmp_path),
        "postgres": lambda: postgres("text", TEXTS),
        "uuid": lambda: postgres("uuid", UUIDS),
        "chdb uuid": lambda: chdb_uuids(tmp_path),
    }
    queue = f"{{{makers[request.param]()}, key: id, source: {{table: items}}, covered_by: [{{table: done}}]}}"
    (tmp_path / "instep.yaml").write_text(f"name: shop\nqueues:\n  bills: {queue}\n")
    return UUIDS if "uuid" in request.param else TEXTS


def test_every_command_takes_texts(
    keys: list[str], capsys: pytest.CaptureFixture[str], given: Callable[..., None]
) -> None:
    said(capsys, "queue", "create", "bills")
    said(capsys, "queue", "backfill", "bills")
    assert "equal to its anti-join" in said(capsys, "queue", "verify", "bills")
    said(capsys, "queue", "switch", "bills")
    taken = _lines(said(capsys, "queue", "next", "bills", "--lease", "5m"))
    assert [each["key"] for each in taken] == keys[::-1]
    first, second, *_ = taken
    given({**first, "key": first["key"].upper()} if "-" in first["key"] else first)
    assert "1 acked" in said(capsys, "queue", "ack", "bills")
    given({**second, "error": "no luck"})
    assert "1 failed" in said(capsys, "queue", "fail", "bills")
    given(first, {"key": "\ud800"}, {"key": "nothing", "fence": 1}, {"key": 7})
    shown = said(capsys, "queue", "ack", "bills", code=3)
    assert "without NUL" in shown
    assert "line 4: key 7: the queue has no such keys" in shown
    status = said(capsys, "queue", "status", "bills")
    assert f"key {json.dumps(keys[0], ensure_ascii=False)}" in status
    assert f"leased     {len(keys) - 2}" in status
    assert "retrying   1" in status


def test_parked_texts_are_named_on_the_command_line(
    keys: list[str], capsys: pytest.CaptureFixture[str], clock: VirtualClock
) -> None:
    said(capsys, "queue", "create", "bills")
    said(capsys, "queue", "backfill", "bills")
    with instep.load().queue("bills") as queue:
        for _ in range(ATTEMPTS):
            queue.fail([KeyFailure(each, None, "no luck") for each in keys])
            clock.sleep(25 * 3600)
    parked = json.loads(said(capsys, "queue", "status", "bills", "--parked", "--json"))
    assert [each["key"] for each in parked] == keys
    assert json.dumps(keys[1], ensure_ascii=False) in said(capsys, "queue", "status", "bills", "--parked")
    done = json.loads(said(capsys, "queue", "unpark", "bills", "--json", keys[1], keys[-1].upper()))
    assert done["unparked"] == [keys[1], keys[-1]]
    if "-" in keys[0]:
        assert "is not a key of this queue" in said(capsys, "queue", "unpark", "bills", "nothing", code=1)
    said(capsys, "queue", "unpark", "bills", "--all")
    assert json.loads(said(capsys, "queue", "status", "bills", "--json"))["parked"]["keys"] == 0


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]
