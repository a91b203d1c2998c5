"""Status: the worst wins, what is missing is not indexed, what cannot be read is unknown and said so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.refs import GLOBAL, PartitionRef, Scope
from instep.domain.status import IndexState, Matrix, StatusKey, StatusKeyTextError, status_key, worst

NAMESPACE, OTHER = Scope("42/9970/"), Scope("42/99/")
ENTITIES = ["Issue", "MergeRequest"]


@dataclass(frozen=True)
class Record:
    key: str
    value: Mapping[str, Any] | None
    unreadable: str | None = None


def record(key: str, state: object) -> Record:
    return Record(key, {"state": state, "rows": 7})


def matrix(*records: Record, scopes: tuple[Scope, ...] = (NAMESPACE,)) -> Matrix:
    return Matrix.of(records, scopes, ENTITIES)


def test_the_order_of_states_is_that_of_the_decision_record() -> None:
    names = ["Indexed", "Indexing", "Error", "Backfilling", "NotIndexed", "Unknown"]
    assert [IndexState(name) for name in names] == list(IndexState)
    for better, worse in pairwise(IndexState):
        assert worst([better, worse]) is worst([worse, better]) is worse


def test_of_nothing_nothing_is_indexed() -> None:
    assert worst([]) is IndexState.NOT_INDEXED
    assert Matrix.of([], [], ENTITIES).whole is IndexState.NOT_INDEXED
    assert Matrix.of([], [NAMESPACE], []).whole is IndexState.NOT_INDEXED


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("status.42.9970.MergeRequest", StatusKey(NAMESPACE, "MergeRequest")),
        ("status.42.MergeRequest", StatusKey(Scope("42/"), "MergeRequest")),
        ("status.global.User", StatusKey(GLOBAL, "User")),
        ("status.42.9970", StatusKey(NAMESPACE, None)),
        ("status.42.global", StatusKey(Scope("42/"), "global")),
    ],
)
def test_the_text_of_a_key(text: str, key: StatusKey) -> None:
    assert str(key) == text
    assert StatusKey.parse(text) == key


scopes = st.lists(st.integers(0, 9_999).map(str), max_size=3).map(lambda ids: Scope("".join(f"{id_}/" for id_ in ids)))


@given(scopes, st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,9}", fullmatch=True))
def test_a_key_is_its_text(scope: Scope, entity: str) -> None:
    text = status_key(PartitionRef(entity, scope))
    assert StatusKey.parse(text) == StatusKey(scope, entity)


@pytest.mark.parametrize(
    "text",
    [
        *("", "status", "status.", "status.global", "status.User", "status..User", "other.42.User"),
        *("status.42.", "status.42.x.User", "status.42/9970.User", "status.42.9970.User\n", "42.9970.User"),
    ],
)
def test_an_invalid_status_key_is_refused(text: str) -> None:
    with pytest.raises(StatusKeyTextError):
        StatusKey.parse(text)


def test_the_worst_entity_is_the_state_of_its_namespace() -> None:
    """A bug of the original: one entity wrote Indexed for the namespace while another was still running."""
    found = matrix(
        record("status.42.9970.Issue", "Indexed"),
        record("status.42.9970.MergeRequest", "Backfilling"),
        record("status.42.99.Issue", "Indexed"),
        record("status.42.99.MergeRequest", "Indexing"),
        scopes=(NAMESPACE, OTHER),
    )
    assert found.of_scope(NAMESPACE) is IndexState.BACKFILLING
    assert found.of_scope(OTHER) is IndexState.INDEXING
    assert found.of_entity("Issue") is IndexState.INDEXED
    assert found.of_entity("MergeRequest") is found.whole is IndexState.BACKFILLING
    assert found.state(PartitionRef("MergeRequest", OTHER)) is IndexState.INDEXING
    assert found.notes == ()


def test_a_missing_key_is_not_indexed() -> None:
    found = matrix(record("status.42.9970.Issue", "Error"))
    assert found.rows == {NAMESPACE: (IndexState.ERROR, IndexState.NOT_INDEXED)}
    assert found.whole is IndexState.NOT_INDEXED


def test_an_unreadable_key_is_unknown_and_reported() -> None:
    """A bug of the original: a failed status read was dropped."""
    found = matrix(
        Record("status.42.9970.Issue", None, "not JSON"), record("status.42.9970.MergeRequest", "NotIndexed")
    )
    assert found.whole is IndexState.UNKNOWN
    assert found.notes == ("status.42.9970.Issue cannot be read: not JSON",)


@pytest.mark.parametrize("state", ["Done", "indexed", "", None, 7, ["Indexed"]])
def test_an_invalid_state_is_unknown_with_a_note(state: object) -> None:
    found = matrix(record("status.42.9970.Issue", state))
    assert found.state(PartitionRef("Issue", NAMESPACE)) is IndexState.UNKNOWN
    assert found.notes == (f"status.42.9970.Issue says {state!r}, which is not a state",)


def test_keys_that_cannot_be_listed_leave_all_unknown() -> None:
    found = Matrix.unread([NAMESPACE, OTHER], ENTITIES, "bus is away")
    assert set(found.rows) == {NAMESPACE, OTHER}
    assert found.of_scope(OTHER) is found.of_entity("Issue") is found.whole is IndexState.UNKNOWN
    assert found.notes == ("the status keys cannot be read: bus is away",)


def test_a_key_of_the_old_format_stands_for_entities_without_one() -> None:
    own = record("status.42.9970.Issue", "Backfilling")
    old = record("status.42.9970", "Indexed")
    for records in ([own, old], [old, own]):
        found = matrix(*records, scopes=(NAMESPACE, OTHER))
        assert found.rows[NAMESPACE] == (IndexState.BACKFILLING, IndexState.INDEXED)
        assert found.of_scope(OTHER) is IndexState.NOT_INDEXED
        assert found.notes == ("status.42.9970 has the old format: it stands for 1 of its entities",)


def test_a_key_of_the_old_format_beside_all_new_ones_counts_nothing() -> None:
    new = [record(f"status.42.9970.{entity}", "Indexed") for entity in ENTITIES]
    found = matrix(record("status.42.9970", "Error"), *new)
    assert (found.whole, found.notes) == (IndexState.INDEXED, ())


@pytest.mark.parametrize(
    "key",
    [
        *("status.42.Issue", "status.42", "status.42.9970.1.Issue", "status.42.9970.Pipeline", "status.global.Issue"),
        *("elsewhere.42.9970.Issue", "42.9970.Issue", "42.9970", "status", ""),
    ],
)
def test_keys_of_others_do_not_count(key: str) -> None:
    own = record("status.42.9970.Issue", "Indexed")
    assert matrix(own, record(key, "Error")) == matrix(own)


def test_global_entities_have_a_matrix_too() -> None:
    found = Matrix.of([record("status.global.User", "Indexed")], [GLOBAL], ["User"])
    assert found.state(PartitionRef("User")) is found.whole is IndexState.INDEXED


def test_a_large_matrix_looks_at_each_key_once() -> None:
    """36 entities in 100 namespaces, among keys of others."""
    entities = [f"Entity{number}" for number in range(36)]
    namespaces = [Scope(f"42/{number}/") for number in range(100)]
    keys = [status_key(PartitionRef(entity, scope)) for entity, scope in product(entities, [*namespaces, Scope("7/")])]
    seen: list[str] = []

    def listed() -> Iterator[Record]:
        for key in keys:
            seen.append(key)
            yield Record(key, {"state": "Error" if key.startswith("status.42.7.") else "Indexed"})

    found = Matrix.of(listed(), namespaces, entities)
    assert seen == keys
    assert sum(len(row) for row in found.rows.values()) == 3_600
    assert [scope for scope in namespaces if found.of_scope(scope) is not IndexState.INDEXED] == [Scope("42/7/")]
