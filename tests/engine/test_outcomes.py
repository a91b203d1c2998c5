"""Outcomes as they are stored in commits of targets: what an older version stored, and the columns of this one."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from instep.document_state.entries import EntryColumns, entry_columns, entry_schema
from instep.domain.counts import Counts
from instep.domain.manifest import ManifestEntry
from instep.domain.waves import Failure, SliceOutcome, Unseen
from instep.pipeline.outcomes import decode_outcome, encode_outcome, encode_outcomes, outcome_batch, outcomes_in


def entries(number: int) -> list[ManifestEntry]:
    return [ManifestEntry(f"doc_{n}", f"file:///ü{n}", n, "v", "h" * 64, 1, n % 4, -n) for n in range(number)]


def in_columns(some: list[ManifestEntry]) -> EntryColumns:
    columns = zip(*some, strict=True)
    arrays = [pa.array(each, field.type) for each, field in zip(columns, entry_schema(), strict=True)]
    return entry_columns(pa.Table.from_arrays(arrays, schema=entry_schema()))


def outcome(some: list[ManifestEntry] | EntryColumns) -> SliceOutcome:
    failures = [Failure("doc_x", "file:///x", "1", "parse", "no text")]
    counts = Counts(read=3, written=2, failed=1)
    return SliceOutcome("s1", 7, counts, some, ["doc_gone"], failures, 4, [Unseen("doc_u", "host")])


@pytest.mark.parametrize("number", [1, 20, 500])
def test_a_commit_of_an_older_version_is_read(number: int) -> None:
    whole = outcome(entries(number))
    value = {
        "slice": "s1",
        "counts": whole.counts.as_dict(),
        "entries": whole.entries,
        "removed": whole.removed,
        "failures": whole.failures,
        "lost": 4,
        "unseen": whole.unseen,
    }
    assert decode_outcome(zlib.compress(json.dumps(value).encode(), 1), fence=7) == whole


@pytest.mark.parametrize("number", [1, 20, 21, 500])
def test_entries_in_columns_come_back_whatever_their_number(number: int) -> None:
    found = decode_outcome(encode_outcome(outcome(in_columns(entries(number)))), fence=7)
    assert replace(found, entries=list(found.entries)) == outcome(entries(number))


@pytest.mark.parametrize("number", [1, 20, 21, 500])
def test_what_stays_in_this_process_is_compressed_where_it_is_stored(number: int) -> None:
    whole = outcome(in_columns(entries(number)))
    found = decode_outcome(encode_outcome(whole, compressed=False), fence=7)
    assert replace(found, entries=list(found.entries)) == outcome(entries(number))
    assert encode_outcome(found) == encode_outcome(whole)


def test_many_outcomes_are_encoded_as_each_is(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [outcome(in_columns(entries(number))) for number in (1, 21, 500)]
    alone = [encode_outcome(each) for each in many]
    assert encode_outcomes(many) == alone
    monkeypatch.setattr("instep.pipeline.outcomes._MANY", 1)
    assert encode_outcomes([outcome(in_columns(entries(number))) for number in (1, 21, 500)]) == alone


@pytest.mark.parametrize("odd", range(9))
def test_entries_are_read_wherever_they_lie_in_memory(odd: int) -> None:
    whole = outcome(in_columns(entries(500)))
    held = b"x" * odd + encode_outcome(whole, compressed=False)
    found = decode_outcome(memoryview(held)[odd:], fence=7)
    assert list(found.entries) == list(whole.entries)


def test_a_task_tells_of_several_slices() -> None:
    told = [encode_outcome(outcome(in_columns(entries(number)))) for number in (1, 100)] + [
        encode_outcome(SliceOutcome("empty", 1, Counts()))
    ]
    framed: Any
    (framed,) = outcome_batch(b"staged", told).column("slices").to_pylist()
    assert [len(each.entries) for each in outcomes_in(framed)] == [1, 100, 0]


def test_entries_that_no_ledger_stores_are_mended_alone() -> None:
    odd = ManifestEntry("doc_\0", "file:///a\0b", 1, "v" * 300, "h", 1, 0, 0)
    found = list(in_columns([*entries(2), odd]))
    assert found[:2] == entries(2)
    assert found[2] == odd.storable() != odd
