"""The manifest difference against an independent model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from instep.domain.identity import bucket_of, canonical_uri, document_id
from instep.domain.manifest import (
    Action,
    DeleteGuard,
    Difference,
    ManifestEntry,
    SourceDocument,
    by_bucket,
    decode_changes,
    difference,
    encode_changes,
    same,
    unchanged,
)

URIS = [f"file:///docs/{n}.md" for n in range(8)]
versions = st.sampled_from(["1", "2"])
sizes = st.integers(0, 2)
listings = st.dictionaries(st.sampled_from(URIS), st.tuples(sizes, versions))
failures = st.dictionaries(st.sampled_from(URIS), versions)


def entry(uri: str, size: int, version: str) -> ManifestEntry:
    identity = document_id(canonical_uri(uri))
    return ManifestEntry(identity, uri, size, version, "hash", 1, bucket_of(identity, 4))


@given(listings, listings, failures, st.sets(st.sampled_from(URIS)), st.booleans(), st.booleans())
def test_every_document_gets_exactly_the_action_the_model_gives_it(
    listed: dict[str, tuple[int, str]],
    recorded: dict[str, tuple[int, str]],
    failed: dict[str, str],
    deleted: set[str],
    complete: bool,
    retry: bool,
) -> None:
    found = difference(
        [SourceDocument(uri, size, version) for uri, (size, version) in listed.items()],
        {uri: entry(uri, size, version) for uri, (size, version) in recorded.items()},
        failed,
        complete=complete,
        buckets=4,
        deleted=sorted(deleted),
        retry_failures=retry,
    )
    actions = {change.uri: change.action for change in found.changes}
    assert len(actions) == len(found.changes)

    expected: dict[str, Action] = {}
    for uri in URIS:
        if uri in listed:
            if uri in failed:
                if retry or failed[uri] != listed[uri][1]:
                    expected[uri] = Action.RETRY
            elif uri not in recorded:
                expected[uri] = Action.INSERT
            elif recorded[uri] != listed[uri]:
                expected[uri] = Action.UPDATE
        elif (complete or uri in deleted) and (uri in recorded or uri in failed):
            expected[uri] = Action.DELETE
    assert actions == expected
    assert found.unchanged == sum(1 for uri in listed if uri not in failed and recorded.get(uri) == listed[uri])
    gone = [uri for uri, action in expected.items() if action is Action.DELETE and uri not in deleted]
    assert found.gone == len(gone)
    for change in found.changes:
        assert change.bucket == bucket_of(change.document_id, 4)
        assert change.previous_hash == ("hash" if change.uri in recorded else "")
    assert decode_changes(encode_changes(found.changes)) == list(found.changes)


@given(listings, listings, st.booleans())
def test_a_listing_is_the_same_exactly_when_there_is_no_difference(
    listed: dict[str, tuple[int, str]], recorded: dict[str, tuple[int, str]], equal: bool
) -> None:
    if equal:
        recorded = dict(reversed(listed.items()))
    documents = [SourceDocument(uri, *of_it) for uri, of_it in listed.items()]
    entries = {uri: entry(uri, *of_it) for uri, of_it in recorded.items()}
    found = difference(documents, entries, {}, complete=True, buckets=4)
    assert same(documents, recorded) == (not found.changes)
    if not found.changes:
        found = Difference((), found.unchanged, found.known_failures, found.recorded, found.gone, found.lost)
        assert unchanged(len(documents)) == found
    assert not same([*documents, *documents[:1]], recorded) or not documents


def test_a_uri_listed_twice_counts_once() -> None:
    twice = [SourceDocument(URIS[0], 1, "1"), SourceDocument(URIS[0], 1, "1")]
    assert len(difference(twice, {}, {}, complete=True, buckets=4).changes) == 1


def test_an_incomplete_listing_deletes_nothing() -> None:
    recorded = {uri: entry(uri, 1, "1") for uri in URIS}
    assert difference([], recorded, {}, complete=False, buckets=4).changes == []


def test_the_delete_guard_needs_both_the_share_and_the_floor() -> None:
    guard = DeleteGuard(0.2, 100)
    assert not guard.refuses(99, 101)
    assert guard.refuses(100, 101)
    assert not guard.refuses(200, 1000)
    assert guard.refuses(201, 1000)


@given(st.integers(1, 300), st.floats(0, 1), st.integers(0, 1000))
def test_a_floor_never_covers_all_that_there_is(recorded: int, share: float, floor: int) -> None:
    guard = DeleteGuard(share, floor)
    assert guard.refuses(recorded, recorded)
    assert not guard.refuses(0, recorded)


def test_documents_that_lose_their_content_count_as_lost() -> None:
    recorded = {uri: entry(uri, 5, "1") for uri in URIS}
    empty = [SourceDocument(uri, 0, "2") for uri in URIS]
    found = difference(empty, recorded, {}, complete=True, buckets=4)
    assert (found.gone, found.lost) == (0, len(URIS))
    # What had no content before loses none, and neither does what only failed.
    without = {uri: each._replace(chunks=0) for uri, each in recorded.items()}
    assert difference(empty, without, {}, complete=True, buckets=4).lost == 0
    assert difference([], {}, dict.fromkeys(URIS, "1"), complete=True, buckets=4).lost == 0


def test_deletions_reported_by_the_source_are_not_guarded() -> None:
    recorded = {uri: entry(uri, 1, "1") for uri in URIS}
    told = difference([], recorded, {}, complete=True, buckets=4, deleted=URIS)
    assert [each.action for each in told.changes] == [Action.DELETE] * len(URIS)
    assert not DeleteGuard(0, 0).refuses(told.lost, told.recorded)
    one = difference([], recorded, {}, complete=True, buckets=4, deleted=URIS[1:])
    assert one.lost == 1
    assert DeleteGuard(0, 0).refuses(one.lost, one.recorded)


def test_changes_are_grouped_by_ascending_buckets_each_in_its_own_order() -> None:
    listed = [SourceDocument(f"file:///docs/{number}.md", 1, "1") for number in range(40)]
    changes = difference(listed, {}, {}, complete=True, buckets=5).changes
    groups = list(by_bucket(changes))
    assert [bucket for bucket, _ in groups] == list(range(5))
    assert [bucket for bucket, _ in by_bucket(changes[::-1])] == list(range(5)), "in whichever order they come"
    for bucket, group in groups:
        assert group == [each for each in changes if each.bucket == bucket]
