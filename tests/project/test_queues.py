"""Queues in the project file: what they say, what is refused and where."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from instep.domain.pending_queue import LARGEST_KEY, KeyKind, KeyRange, QueueCover, QueueSource, QueueSpec
from instep.project import Project, json_schema

from .conftest import BASE, Load, Reject

QUEUES = """\
name: matches
queues:
  salts:
    on: clickhouse://app:${SECRET}@db:8123/game
    key: match_id
    keys: {from: 31247321, below: 4294967295}
    source: {table: history, where: "mode IN ('Ranked', 'Unranked')", event_time: start_time}
    covered_by:
      - {table: match_salts, where: failed = 0, uncovered: failed = 1}
      - {table: match_player}
    settle: 2h
    participants: account_id
"""

QUEUE = {"on": "sqlite:///x", "key": "id", "source": {"table": "a"}, "covered_by": [{"table": "b"}]}


def said(reject: Reject, old: str, new: str) -> str:
    assert QUEUES.count(old) == 1, old
    error = reject(QUEUES.replace(old, new), {"SECRET": "hunter2"})
    assert "hunter2" not in str(error)
    return " | ".join(f"{each.line} {each}" for each in error.problems)


def test_a_declared_queue_gives_the_domain_its_settings(load: Load) -> None:
    project = load(QUEUES, {"SECRET": "hunter2"})
    assert project.queues["salts"].spec("salts") == QueueSpec(
        "salts",
        "match_id",
        QueueSource("history", "mode IN ('Ranked', 'Unranked')", "start_time"),
        (QueueCover("match_salts", "failed = 0", "failed = 1"), QueueCover("match_player", None, None)),
        KeyRange(31247320, 4294967294),
        timedelta(hours=2),
        newest_first=True,
        participants="account_id",
    )
    assert project.queue_address("salts") == "http://app:hunter2@db:8123/game"
    assert "hunter2" not in repr(project)


@pytest.mark.parametrize(
    ("on", "engine", "address"),
    [
        ("clickhouses://db/game", "clickhouse", "https://db/game"),
        ("chdb:///data/store", "chdb", "{root}/data/store"),
        ("chdb:////data/store", "chdb", "/data/store"),
        ("sqlite:///data/queue.db", "sqlite", "{root}/data/queue.db"),
        ("postgresql://app@db/game", "postgresql", "postgresql://app@db/game"),
    ],
)
def test_the_address_and_engine_of_a_queue(load: Load, on: str, engine: str, address: str) -> None:
    plain = QUEUES.replace(", uncovered: failed = 1", "")
    project = load(plain.replace("clickhouse://app:${SECRET}@db:8123/game", on))
    assert project.queues["salts"].engine == engine
    assert project.queue_address("salts") == address.format(root=project.root)


def test_a_short_queue_beside_entities(load: Load) -> None:
    project = load(
        f"{BASE}queues: {{q: {{on: sqlite:///x, key: id, source: {{table: a}}, covered_by: [{{table: b}}]}}}}"
    )
    spec = project.queues["q"].spec("q")
    assert (spec.keys, spec.settle, spec.newest_first) == (KeyRange(-1, LARGEST_KEY - 1), timedelta(), True)
    assert list(project.entities) == ["Document"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("clickhouse://app", "mysql://app", "4 queues.salts.on: must be the database of the tables: clickhouse://…"),
        (
            "clickhouse://app:${SECRET}@db:8123/game",
            "chdb://here",
            "sqlite:///file; a folder or file is behind three slashes",
        ),
        ("clickhouse://app:", "clickhouse://app/:", "4 queues.salts.on: must be a folder, or look like"),
        ("clickhouse://app:${SECRET}@db:8123/game", "'sqlite:///:memory:'", "found (not shown)"),
        (
            "clickhouse://app:${SECRET}@db:8123/game",
            "postgresql://db",
            "4 queues.salts.on: must look like postgresql://",
        ),
        ("    key: match_id\n", "", "3 queues.salts.key: is missing"),
        (
            "settle: 2h",
            "setle: 2h",
            "11 queues.salts.setle: unknown key (did you mean settle?); allowed: on, schema, key",
        ),
        ("settle: 2h", "settle: 2", "11 queues.salts.settle: must be a duration"),
        (
            "settle: 2h",
            "order: random",
            "11 queues.salts.order: is not one of the allowed values; found 'random'; allowed",
        ),
        ("settle: 2h", "schema: x", "11 queues.salts.schema: is for PostgreSQL"),
        (", event_time: start_time", "", "11 queues.salts.settle: needs `event_time` in `source`"),
        ("table: history", "tabel: history", "7 queues.salts.source.tabel: unknown key (did you mean table?)"),
        (
            "from: 31247321, below: 4294967295",
            "from: 9, below: 9",
            "6 queues.salts.keys.below: must be more than `from`",
        ),
        ("from: 31247321", "start: 31247321", "6 queues.salts.keys.start: unknown key"),
        ("from: 31247321", "type: text", "6 queues.salts.keys.type: `from` and `below` are for integers"),
        (
            "from: 31247321",
            "type: date",
            "6 queues.salts.keys.type: is not one of the allowed values; found 'date'; allowed: integer",
        ),
        (
            "{from: 31247321, below: 4294967295}",
            "date",
            "6 queues.salts.keys: is not one of the allowed values; found 'date'; allowed: integer",
        ),
        ("below: 4294967295", "below: 9223372036854775808", "6 queues.salts.keys.below: must be at most"),
        ("table: match_player", "where: x", "10 queues.salts.covered_by[1].table: is missing"),
        ("where: failed = 0, ", "", "9 queues.salts.covered_by[0].uncovered: needs `where`"),
        (
            "clickhouse://app:${SECRET}@db:8123/game",
            "sqlite:///x",
            "9 queues.salts.covered_by[0].uncovered: is for Click",
        ),
        ("  salts:", "  my-salts:", "3 queues.my-salts: a queue's name is letters, digits and underscores"),
    ],
)
def test_invalid_declarations_are_refused(reject: Reject, old: str, new: str, says: str) -> None:
    assert says in said(reject, old, new)


def test_entities_need_a_target_and_queues_do_not(reject: Reject) -> None:
    error = reject("name: x\nentities: {D: {source: {type: files, path: x}}}\n")
    assert [str(each) for each in error.problems] == ["targets: is missing: entities need one"]
    error = reject("name: x\n")
    assert [str(each) for each in error.problems] == ["entities: is missing: declare what is indexed, or `queues`"]


@pytest.mark.parametrize("kind", list(KeyKind))
def test_the_type_of_keys_is_declared_in_short(kind: KeyKind) -> None:
    short = QUEUE | {"on": "postgresql://db/game", "keys": str(kind)}
    long = short | {"keys": {"type": str(kind)}}
    specs = [
        Project.model_validate({"name": "x", "queues": {"q": each}}).queues["q"].spec("q") for each in (short, long)
    ]
    assert specs[0] == specs[1]
    assert specs[0].kind is kind
    assert specs[0].keys == (KeyRange(-1, LARGEST_KEY - 1) if kind is KeyKind.INTEGER else KeyRange())


def test_sqlite_has_no_uuids() -> None:
    with pytest.raises(ValueError, match="SQLite has no type for UUIDs: write `text` if they are texts"):
        Project.model_validate({"name": "x", "queues": {"q": QUEUE | {"keys": "uuid"}}})


def test_names_of_queues_differ_in_more_than_case() -> None:
    with pytest.raises(ValueError, match="differs from salts in case only"):
        Project.model_validate({"name": "x", "queues": {"salts": QUEUE, "Salts": QUEUE}})


def test_the_schema_for_editors_knows_queues() -> None:
    schema = json_schema()
    assert "settle" in schema["$defs"]["Queue"]["properties"]
    assert "from" in json.dumps(schema["$defs"]["QueueKeys"])


@pytest.mark.parametrize(
    ("on", "label"),
    [
        ("clickhouse://app:${SECRET}@db:8123/game", "clickhouse://db:8123/game"),
        ("clickhouses://${SECRET}@db/game", "clickhouses://db/game"),
        ("postgresql://app:${SECRET}@db/game", "db/game"),
        ("sqlite:///data/queue.db", "sqlite:///data/queue.db"),
    ],
)
def test_the_label_of_a_queue_holds_no_secret(load: Load, on: str, label: str) -> None:
    text = QUEUES.replace("clickhouse://app:${SECRET}@db:8123/game", on)
    if not on.startswith("clickhouse"):
        text = text.replace(", uncovered: failed = 1", "")
    shown = load(text, {"SECRET": "hunter2"}).queues["salts"].label
    assert "hunter2" not in shown
    assert "app" not in shown
    assert shown.endswith(label)
