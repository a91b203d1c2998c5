"""What differs in a target, and what a repair does about it."""

from __future__ import annotations

import pytest

from instep.domain.discrepancies import Differing, Discrepancy, Held, Truth, discrepancies, repairs
from instep.domain.identity import bucket_of, document_id
from instep.domain.manifest import Action, ManifestEntry, SourceDocument

URI = "file:///a"
ID = document_id(URI)
ENTRY = ManifestEntry(ID, URI, 7, "v1", "hash", 3, 0, 42)
LISTED = SourceDocument(URI, 8, "v2", "at")


@pytest.mark.parametrize(
    ("held", "recorded", "expected"),
    [
        (Held(0, 0, 0), True, {"missing": 3}),
        (Held(2, 2, 9), True, {"missing": 1}),
        (Held(3, 3, 9), True, {"stale": 3}),
        (Held(4, 3, 42), True, {"duplicate": 1}),
        (Held(4, 2, 9), True, {"duplicate": 2, "missing": 1}),
        (Held(5, 4, 9), True, {"duplicate": 1, "orphan": 1}),
        (Held(5, 4, 9), False, {"orphan": 5}),
    ],
)
def test_each_kind_of_difference_of_a_document(held: Held, recorded: bool, expected: dict[str, int]) -> None:
    found = list(discrepancies({ID: held}, {ID: ENTRY} if recorded else {}, {ID: URI}))
    assert {str(each.kind): each.rows for each in found} == expected
    assert {each.uri for each in found} == {URI}


def test_without_a_digest_the_number_of_chunks_has_to_do() -> None:
    assert list(discrepancies({ID: Held(3, 3, 9)}, {ID: ENTRY._replace(digest=None)}, {})) == []


def change(
    *, recorded: bool, listed: bool, failed: bool = False, gone: bool = False, exhaustive: bool = True
) -> tuple[Action, int, str]:
    truth = Truth(
        {ID: ENTRY} if recorded else {},
        {URI: LISTED} if listed else {},
        {URI} if failed else set(),
        {URI} if gone else set(),
        exhaustive,
    )
    (made,) = repairs([Differing(ID, URI, kind, 1) for kind in (Discrepancy.DUPLICATE, Discrepancy.MISSING)], truth, 4)
    assert (made.document_id, made.uri, made.bucket, made.previous_hash) == (ID, URI, bucket_of(ID, 4), "")
    assert made.reason == "duplicate, missing"
    return made.action, made.size, made.version + made.locator


def test_a_listed_document_is_repaired_from_the_source() -> None:
    assert change(recorded=True, listed=True) == (Action.UPDATE, 8, "v2at")
    assert change(recorded=False, listed=True) == (Action.INSERT, 8, "v2at")


def test_rows_of_a_deleted_document_are_removed() -> None:
    assert change(recorded=True, listed=False) == (Action.DELETE, 7, "v1")
    assert change(recorded=True, listed=False, exhaustive=False, gone=True) == (Action.DELETE, 7, "v1")
    assert change(recorded=False, listed=False, exhaustive=False) == (Action.DELETE, 0, "")


def test_rows_of_a_document_that_cannot_be_read_and_was_never_indexed_go() -> None:
    assert change(recorded=False, listed=True, failed=True) == (Action.DELETE, 0, "")


def test_rows_that_only_say_where_they_come_from_go() -> None:
    truth = Truth({}, {URI: LISTED}, set(), set(), True)
    (made,) = repairs([Differing("stranger", URI, Discrepancy.ORPHAN, 1)], truth, 4)
    assert (made.action, made.document_id) == (Action.DELETE, "stranger")


def test_a_document_missing_from_an_incomplete_listing_is_left_alone() -> None:
    truth = Truth({ID: ENTRY}, {}, set(), set(), False)
    assert repairs([Differing(ID, URI, Discrepancy.MISSING, 1)], truth, 4) == []
