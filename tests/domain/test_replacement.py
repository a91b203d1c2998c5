"""Whether a build may replace what is served: named cases, and what holds for all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from instep.domain.promotion_rules import NEEDED, Judged, judged

URIS = [f"u{number}" for number in range(40)]


def versions(numbers: range, version: str = "1") -> dict[str, str]:
    return {URIS[number]: version for number in numbers}


def failing(*ranges: range) -> set[str]:
    return {URIS[number] for numbers in ranges for number in numbers}


def test_a_build_with_nearly_all_documents_is_enough_for_any_served_one() -> None:
    assert judged({}, versions(range(20)), failing(range(1))).enough
    assert judged(versions(range(20)), versions(range(20), "2"), failing(range(1))).enough


def test_a_transform_that_now_fails_on_three_of_ten_is_not_good() -> None:
    now = judged(versions(range(10)), versions(range(10)), failing(range(3)))
    assert not now.enough
    assert str(now) == "3 of 10 documents that are served as the source has them failed (at least 95% must be indexed)"


def test_a_build_lacking_too_many_is_not_enough_though_all_documents_changed() -> None:
    now = judged(versions(range(10)), versions(range(10), "2"), failing(range(3)))
    assert (now.documents, now.failed, now.enough) == (10, 3, False)


def test_changed_documents_may_be_missing_while_most_are_unchanged() -> None:
    served, listed = versions(range(10)), versions(range(5)) | versions(range(5, 10), "2")
    assert judged(served, listed, failing(range(5, 10))).enough
    assert not judged(served, listed, failing(range(1))).enough
    assert not judged(served, listed | versions(range(4, 5), "2"), failing(range(5, 10))).enough


def test_new_and_deleted_documents_do_not_count() -> None:
    assert judged(versions(range(10)), versions(range(30)), failing(range(10, 30))).enough
    assert judged(versions(range(30)), versions(range(10)), set()).enough
    assert not judged(versions(range(30)), versions(range(10)), failing(range(1))).enough


def test_a_source_with_none_of_the_served_documents_is_judged_as_a_whole() -> None:
    assert not judged(versions(range(10)), versions(range(10, 20)), failing(range(10, 13))).enough
    assert judged(versions(range(10)), versions(range(10, 20)), set()).enough


def test_a_build_in_which_all_failed_is_not_good() -> None:
    for served in (versions(range(10)), versions(range(10), "0"), versions(range(5))):
        assert not judged(served, versions(range(10)), failing(range(10))).enough


def test_of_nothing_nothing_is_missing() -> None:
    assert Judged(0, 0).enough


some = st.dictionaries(st.sampled_from(URIS), st.sampled_from(["1", "2"]))


@given(some, some, st.sets(st.sampled_from(URIS)))
def test_a_build_that_is_enough_loses_few_served_documents(
    served: dict[str, str], listed: dict[str, str], failed: set[str]
) -> None:
    """A build that is good lacks few of all documents, or few of those that count for it; and fewer failures are never
    worse.
    """
    failed &= set(listed)
    now = judged(served, listed, failed)
    there = [uri for uri in served if uri in listed]
    kept = [uri for uri in there if served[uri] == listed[uri]]
    lost = [uri for uri in kept if uri in failed]
    if now.enough and 2 * len(kept) >= len(there):
        assert len(lost) <= (1 - NEEDED) * max(len(kept), len(listed)) + 1e-9
    for uri in failed:
        assert judged(served, listed, failed - {uri}).enough or not now.enough
