"""References: parsing, printing, instance ids."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from instep.domain.fingerprint import changed_parts, digest
from instep.domain.refs import (
    GLOBAL,
    PartitionRef,
    RefError,
    Scope,
    entity_in,
    instance_id,
    is_normal,
    is_own_name,
    outside,
    own_name,
)
from instep.domain.status import StatusKey, status_key

names = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,20}", fullmatch=True)
paths = st.lists(st.integers(0, 10**9), max_size=4).map(lambda ids: "/".join(map(str, ids)))


@given(names, paths)
def test_a_reference_survives_printing_and_parsing(entity: str, path: str) -> None:
    ref = PartitionRef(entity, Scope.parse(path) if path else GLOBAL)
    assert PartitionRef.parse(str(ref)) == ref


@given(names.filter(is_own_name), st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_]{0,20}", fullmatch=True))
def test_an_entity_in_several_targets_has_normal_references(entity: str, target: str) -> None:
    """In references, in keys of the bus; and no other entity has that name."""
    ref = PartitionRef(entity_in(entity, target))
    assert PartitionRef.parse(str(ref)) == ref
    assert is_normal(str(ref))
    assert StatusKey.parse(status_key(ref)) == StatusKey(GLOBAL, ref.entity)
    assert own_name(ref.entity) == entity
    assert not is_own_name(ref.entity)


def test_references_read_as_in_the_design() -> None:
    assert str(PartitionRef.parse("MergeRequest@42/9970/")) == "MergeRequest@42/9970"
    assert PartitionRef.parse("Document") == PartitionRef.parse("Document@global")
    assert Scope.parse("42/9970").path == "42/9970/"


@pytest.mark.parametrize("bad", ["", "1abc", "a b", "Document@", "Document@42//1", "Document@../x", "x" * 101, "a@b"])
def test_bad_references_are_refused(bad: str) -> None:
    if bad == "Document@":
        assert PartitionRef.parse(bad).scope.is_global
        return
    with pytest.raises(RefError):
        PartitionRef.parse(bad)


@given(
    st.text("aZ0_9@/global\n", max_size=8) | st.builds("{}@{}{}".format, names, paths, st.sampled_from(["", "/", "\n"]))
)
@example("Document@global")
@example("x" * 101 + "@global")
def test_the_normal_form_is_the_printed_reference(text: str) -> None:
    try:
        printed = str(PartitionRef.parse(text))
    except RefError:
        assert not is_normal(text)
    else:
        assert is_normal(text) == (printed == text)
        assert is_normal(printed)


def test_instance_ids_are_the_same_at_every_replay_and_differ_between_builds() -> None:
    ref = PartitionRef("Document")
    assert str(instance_id(ref, 1)) == str(instance_id(ref, 1))
    assert len({instance_id(ref, n) for n in range(100)}) == 100


def test_fingerprints_ignore_key_order_and_name_the_changed_part() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert changed_parts({"chunker": "1", "embedder": "1"}, {"chunker": "2", "embedder": "1"}) == ["chunker"]
    assert changed_parts({"a": "1"}, {}) == ["a"]


def test_the_global_scope_is_within_no_scope_and_contains_none() -> None:
    namespace, inner = Scope.parse("42"), Scope.parse("42/9970")
    assert inner.within(namespace)
    assert namespace.within(namespace)
    assert not namespace.within(inner)
    assert not Scope.parse("421").within(namespace)
    for scope in (GLOBAL, namespace):
        assert not GLOBAL.within(scope)
        assert not scope.within(GLOBAL)


def test_paths_outside_of_namespaces_are_ranges() -> None:
    found = outside(map(Scope.parse, ("42/9970", "7", "42/9970/1", "420", "42/9971")))
    assert found == [("", "42/9970/"), ("42/99700", "42/9971/"), ("42/99710", "420/"), ("4200", "7/"), ("70", None)]
    assert outside(()) == [("", None)]


@given(
    st.lists(st.from_regex(r"[0-3]{1,2}(/[0-3]{1,2}){0,2}", fullmatch=True), max_size=6), st.text("0123/", max_size=9)
)
def test_a_path_is_in_a_namespace_or_outside(namespaces: list[str], path: str) -> None:
    scopes = [Scope.parse(each) for each in namespaces]
    ranges = [start <= path and (end is None or path < end) for start, end in outside(scopes)]
    assert sum(ranges) == (not any(path.startswith(each.path) for each in scopes))
