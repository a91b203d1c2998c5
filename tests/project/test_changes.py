"""Entities whose changes a pending queue says: what is taken, and what is refused and where."""

from __future__ import annotations

import pytest

from instep.project import Changes, TableEntity

from .conftest import Load, Reject

FED = """\
name: matches
targets:
  index: {type: lance, uri: index}
queues:
  salts:
    on: clickhouse://db:8123/game
    key: match_id
    source: {table: history}
    covered_by: [{table: match_salts}]
entities:
  Match:
    source: {type: clickhouse, uri: "http://replica:8123/game", table: game.history}
    key: match_id
    changes: {queue: salts}
"""
SECOND = """\
  Again:
    source: {type: spark, path: history}
    key: match_id
    changes: {queue: salts}
"""


def test_an_entity_takes_from_a_queue_of_its_table(load: Load) -> None:
    entity = load(FED).entities["Match"]
    assert isinstance(entity, TableEntity)
    assert entity.changes == Changes(queue="salts")


@pytest.mark.parametrize("kind", ["text", "uuid"])
def test_keys_may_be_texts_and_uuids(load: Load, kind: str) -> None:
    entity = load(FED.replace("    source: {table", f"    keys: {kind}\n    source: {{table")).entities["Match"]
    assert isinstance(entity, TableEntity)
    assert entity.changes == Changes(queue="salts")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("queue: salts}", "queue: slats}", "no such queue; found 'slats'; allowed: salts (did you mean salts?)"),
        ("    key: match_id\n    changes", "    key: id\n    changes", "alone, which is the key of"),
        ("    key: match_id\n    changes", "    key: [match_id, a]\n    changes", "alone, which is the key of"),
        ("game.history}", "game.players}", "must be history, the table of the queue"),
        ("    changes", "    scope: path\n    changes", "the keys of a queue have no namespaces"),
        ("    changes", "    watermark: at\n    watermark_lag: 5m\n    changes", "set `settle` of the queue"),
        ("    changes", "    document: {text: a}\n    changes", "is for tables, and this is an entity of documents"),
        ("salts}\n", f"salts}}\n{SECOND}", "Match uses this queue already"),
    ],
)
def test_settings_that_do_not_fit_the_queue_are_refused(reject: Reject, old: str, new: str, expected: str) -> None:
    assert FED.count(old) == 1
    assert any(expected in str(each) for each in reject(FED.replace(old, new)).problems)
