"""A process that writes wave after wave reads of an index what is new to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.targets.lance.known_documents import KnownDocuments

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "delete", "compact", "make anew", "look"]), st.lists(st.sampled_from("abcdefgh"))
    ),
    max_size=8,
)


class Index:
    """An index of documents, and the rows that were read of it."""

    def __init__(self, folder: Path) -> None:
        self.uri = str(folder / "index.lance")
        self.number = 0
        self.rows_read = 0
        self.make([])

    def make(self, ids: Sequence[str]) -> None:
        lance.write_dataset(_rows(ids), self.uri, mode="overwrite" if self.number else "create")
        self.number += 1

    def add(self, ids: Sequence[str]) -> None:
        lance.write_dataset(_rows(ids), self.uri, mode="append")

    @property
    def dataset(self) -> Any:
        return _Watched(lance.dataset(self.uri), self)


class _Watched:
    """A dataset that counts the rows which are read."""

    def __init__(self, dataset: Any, index: Index) -> None:
        self._dataset, self._index = dataset, index

    def get_fragments(self) -> Any:
        return self._dataset.get_fragments()

    def scanner(self, **how: Any) -> _Watched:
        self._scanner = self._dataset.scanner(**how)
        return self

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._scanner.to_batches():
            self._index.rows_read += batch.num_rows
            yield batch


def _rows(ids: Sequence[str]) -> pa.Table:
    return pa.table({"document_id": pa.array(ids, pa.string())})


def has(known: KnownDocuments, index: Index) -> set[str]:
    asked = pa.array(list("abcdefgh"))
    return {
        each
        for each, there in zip("abcdefgh", known.of(index.uri, index.dataset).contains(asked), strict=True)
        if there
    }


def test_rows_of_former_waves_are_not_read_again(tmp_path: Path) -> None:
    index, known = Index(tmp_path), KnownDocuments()
    index.add(["a"] * 1_000)
    assert known.unread(index.uri, index.dataset) == 1_000
    assert has(known, index) == {"a"}
    index.add(["b"] * 10)
    assert known.unread(index.uri, index.dataset) == 10
    assert has(known, index) == {"a", "b"}
    assert index.rows_read == 1_010
    assert known.unread(index.uri, index.dataset) == 0


def test_an_index_that_was_made_anew_has_nothing_of_the_former(tmp_path: Path) -> None:
    index, known = Index(tmp_path), KnownDocuments()
    index.add(["a"])
    assert has(known, index) == {"a"}
    index.make(["b"])
    assert has(known, index) == {"b"}


def test_a_version_from_before_a_deletion_has_what_was_deleted(tmp_path: Path) -> None:
    index, known = Index(tmp_path), KnownDocuments()
    index.add(["a", "b"])
    before = lance.dataset(index.uri)
    lance.dataset(index.uri).delete("document_id = 'a'")
    known.of(index.uri, index.dataset)
    assert known.of(index.uri, before).contains(pa.array(["a", "b"])).tolist() == [True, True]


def test_what_was_asked_for_first_is_forgotten_first(tmp_path: Path) -> None:
    known = KnownDocuments(most=3)
    first, second = (Index(tmp_path / name) for name in "xy")
    for each in (first, second):
        each.add(["a", "b"])
        assert has(known, each) == {"a", "b"}
    assert known.unread(first.uri, first.dataset) == 2
    assert known.unread(second.uri, second.dataset) == 0


def test_an_index_of_more_documents_than_are_remembered_is_read_each_time(tmp_path: Path) -> None:
    index, known = Index(tmp_path), KnownDocuments(most=1)
    index.add(["a", "b"])
    assert [has(known, index) for _ in range(2)] == [{"a", "b"}] * 2
    assert index.rows_read == 4


@given(steps=STEPS)
def test_no_document_that_has_rows_is_missed(
    steps: list[tuple[str, list[str]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    index, known = Index(tmp_path_factory.mktemp("index")), KnownDocuments()
    for step, ids in steps:
        if step == "add":
            index.add(ids)
        elif step == "delete" and ids:
            lance.dataset(index.uri).delete(f"document_id IN ({', '.join(map(repr, ids))})")
        elif step == "compact":
            lance.dataset(index.uri).optimize.compact_files()
        elif step == "make anew":
            index.make(ids)
        assert has(known, index) >= {*lance.dataset(index.uri).to_table()["document_id"].to_pylist()}
