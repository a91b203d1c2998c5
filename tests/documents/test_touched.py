"""A listing is compared by versions first, and with whole entries where these differ: all as if by entries alone."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from instep.domain.identity import canonical_uri, document_id
from instep.domain.manifest import ManifestEntry, SourceDocument, difference
from instep.entities.documents.comparing import compared
from instep.ledger.ledger import Ledger
from instep.sources.document_source import Listing

uris = st.sampled_from([f"file:///{name}.md" for name in "abcdef"])
sizes, versions = st.sampled_from([-1, 0, 1]), st.sampled_from(["1", "2"])
listings = st.lists(st.builds(SourceDocument, uris, sizes, versions), max_size=8)
records = st.dictionaries(uris, st.tuples(st.sampled_from([0, 1]), versions), max_size=6)


class Recorded:
    """What a ledger tells of the documents of an instance."""

    def __init__(self, entries: dict[str, ManifestEntry]) -> None:
        self._entries = entries
        self.read: set[str] = set()

    def versions(self, instance: str) -> dict[str, tuple[int, str]]:
        return {uri: (each.size, each.version) for uri, each in self._entries.items()}

    def some(self, instance: str, uris: Collection[str]) -> dict[str, ManifestEntry]:
        assert set(uris) <= self._entries.keys()
        self.read |= set(uris)
        return {uri: self._entries[uri] for uri in uris}


def entry(uri: str, size: int, version: str) -> ManifestEntry:
    return ManifestEntry(document_id(canonical_uri(uri)), uri, size, version, "hash", 1, 0)


def ledger_of(recorded: Recorded) -> Ledger:
    return cast(Ledger, cast(Any, SimpleNamespace(documents=recorded)))


@given(
    listings,
    records,
    st.dictionaries(uris, versions, max_size=2),
    st.lists(uris, max_size=2),
    st.booleans(),
    st.booleans(),
)
def test_it_finds_what_a_comparison_of_all_entries_finds(
    listed: list[SourceDocument],
    record: dict[str, tuple[int, str]],
    failed: dict[str, str],
    deleted: list[str],
    exhaustive: bool,
    retry: bool,
) -> None:
    entries = {uri: entry(uri, *each) for uri, each in record.items()}
    listing = Listing(listed, [], deleted=deleted, exhaustive=exhaustive)
    _, found = compared(ledger_of(Recorded(entries)), "one", listing, failed, buckets=4, retry_failures=retry)
    wanted = difference(listed, entries, failed, complete=exhaustive, buckets=4, deleted=deleted, retry_failures=retry)
    assert found == wanted or (sorted(found.changes), counts(found)) == (sorted(wanted.changes), counts(wanted))


def counts(found: Any) -> tuple[int, ...]:
    return found.unchanged, found.known_failures, found.recorded, found.gone, found.lost


def test_of_a_document_that_is_listed_twice_the_first_one_counts() -> None:
    listed = [SourceDocument("file:///a.md", 1, "1"), SourceDocument("file:///a.md", 1, "2")]
    recorded = Recorded({"file:///a.md": entry("file:///a.md", 1, "1")})
    _, found = compared(ledger_of(recorded), "one", Listing(listed, []), {}, buckets=4)
    assert (list(found.changes), found.unchanged, recorded.read) == ([], 1, set())


def test_entries_are_read_of_what_has_changed_alone() -> None:
    listed = [SourceDocument(f"file:///{number}.md", 1, "1") for number in range(20)]
    recorded = Recorded({each.uri: entry(*each[:3]) for each in listed})
    listed[3] = listed[3]._replace(version="2")
    del listed[7]
    _, found = compared(ledger_of(recorded), "one", Listing(listed, []), {}, buckets=4)
    assert (recorded.read, len(found.changes)) == ({"file:///3.md", "file:///7.md"}, 2)
