"""The corpus is the same for the same seed; the truth check sees every kind of wrong index."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from bench import corpus, truth


def _texts(folder: Path) -> dict[str, str]:
    return {path: (folder / path).read_text() for path in corpus.markdown_files(folder)}


def test_same_seed_writes_same_documents_of_about_ten_chunks(tmp_path: Path) -> None:
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        corpus.generate(tmp_path / name, 300, seed=seed)
    texts = _texts(tmp_path / "a")
    assert len(texts) == 300
    assert texts == _texts(tmp_path / "b")
    assert texts != _texts(tmp_path / "c")
    assert max(len(list(part.iterdir())) for part in (tmp_path / "a").iterdir()) <= 250
    assert 8 < truth.expected(tmp_path / "a").total() / 300 < 14


def test_mutation_changes_one_paragraph_and_deletes_and_adds_as_many_as_it_says(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    corpus.generate(folder, 300)
    before = _texts(folder)
    mutation = corpus.mutate(folder, seed=1, changed=7, deleted=3, added=2)
    after = _texts(folder)
    assert sorted(before.keys() - after.keys()) == sorted(mutation.deleted)
    assert sorted(after.keys() - before.keys()) == sorted(mutation.added)
    assert sorted(path for path in before.keys() & after.keys() if before[path] != after[path]) == sorted(
        mutation.changed
    )
    assert (len(mutation.changed), len(mutation.deleted), len(mutation.added)) == (7, 3, 2)
    for path in mutation.changed:
        old, new = before[path].split("\n\n"), after[path].split("\n\n")
        assert sum(a != b for a, b in zip(old, new, strict=True)) == 1


@pytest.mark.parametrize(
    ("have", "verdict"),
    [
        (["a", "b", "b"], truth.Verdict(3, 0, 0, 0)),
        (["a", "b"], truth.Verdict(2, 1, 0, 0)),
        (["a", "b", "b", "c"], truth.Verdict(4, 0, 1, 0)),
        (["a", "a", "b", "b"], truth.Verdict(4, 0, 0, 1)),
    ],
)
def test_comparison_distinguishes_missing_stale_and_duplicate_rows(have: list[str], verdict: truth.Verdict) -> None:
    want = truth.Chunks([("doc", text.encode()) for text in ("a", "b", "b")])
    found = truth.compare(want, truth.Chunks([("doc", text.encode()) for text in have]))
    assert found == verdict
    assert found.holds == (have == ["a", "b", "b"])


def test_check_reads_a_lance_dataset(tmp_path: Path) -> None:
    lance = pytest.importorskip("lance")
    folder = tmp_path / "corpus"
    corpus.generate(folder, 3)
    rows = [(document, text) for document, text in _expected_texts(folder)]
    columns = {"document_id": [row[0] for row in rows], "text": [row[1] for row in rows]}
    lance.write_dataset(pa.table(columns), str(tmp_path / "right"))
    lance.write_dataset(pa.table({name: column[1:] for name, column in columns.items()}), str(tmp_path / "short"))
    assert truth.check(folder, tmp_path / "right").holds
    assert truth.check(folder, tmp_path / "short").missing == 1


def _expected_texts(folder: Path) -> list[tuple[str, str]]:
    from semantic_text_splitter import MarkdownSplitter

    from instep.domain.identity import document_id, file_uri

    splitter = MarkdownSplitter(truth.CHUNK_SIZE)
    return [
        (document_id(file_uri(bytes((folder / path).resolve()))), text)
        for path, content in _texts(folder).items()
        for text in splitter.chunks(content)
    ]
