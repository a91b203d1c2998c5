"""What a build would take away, in columns: the same as by the rule for one document after the other."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from instep.document_state.losses import emptied, failing, missing, tally
from instep.domain.identity import as_named_now
from instep.domain.promotion_rules import judged

paths = st.sampled_from(["a", "b/c", "d", "e", "f", "g", "h"])
uris = st.one_of(paths.map(lambda path: f"project:///{path}"), paths.map(lambda path: f"file:///home/{path}"))
versions = st.dictionaries(uris, st.sampled_from(["1", "2"]))
sizes = st.tuples(st.integers(0, 1), st.integers(0, 2))


def table(known: Mapping[str, str]) -> pa.Table:
    kinds = pa.schema({"uri": pa.string(), "version": pa.string()})
    return pa.Table.from_pydict({"uri": list(known), "version": list(known.values())}, kinds)


@given(versions, versions, versions, st.sampled_from([0.5, 0.95, 1.0]))
def test_a_build_is_judged_as_document_by_document(
    served: dict[str, str], listed: dict[str, str], failures: dict[str, str], needed: float
) -> None:
    failed = {uri for uri, version in listed.items() if failures.get(uri) == version}
    known = failing(table(listed), failures)
    assert set(known.to_pylist()) == failed
    found = tally(table(served), table(listed), known)
    assert found.judged(needed) == judged(as_named_now(served, listed), listed, failed, needed)
    assert found.failed == len(failed)


@given(versions, versions)
def test_missing_documents_are_those_that_are_under_no_name(served: dict[str, str], kept: dict[str, str]) -> None:
    expected = len(as_named_now(served, kept).keys() - kept.keys())
    assert missing(table(served)["uri"], table(kept)["uri"]) == expected


@given(st.dictionaries(paths, sizes), st.dictionaries(paths, sizes))
def test_emptied_documents_are_in_both_and_have_fewer_chunks(
    before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]
) -> None:
    both = [(before[uri][1], *after[uri]) for uri in before.keys() & after.keys()]
    kinds = pa.schema(dict[str, pa.DataType](uri=pa.string(), size=pa.int64(), chunks=pa.int64()))
    served, built = (
        pa.Table.from_pylist([dict(zip(kinds.names, (uri, *each), strict=True)) for uri, each in known.items()], kinds)
        for known in (before, after)
    )
    found = emptied(served, built)
    assert found.documents == sum(was > 0 and now == 0 for was, _, now in both)
    assert found.blank == sum(was > 0 and now == 0 and size > 0 for was, size, now in both)
    assert found.chunks == sum(max(0, was - now) for was, _, now in both)
