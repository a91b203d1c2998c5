"""A folder of documents in Milvus, as a user has it: declared, run, searched, changed, and rebuilt."""

from __future__ import annotations

from pathlib import Path

import pytest

import instep
from instep.domain.jobs import JobState
from instep.targets.milvus.target import MilvusTarget
from tests.e2e import corpus, truth
from tests.targets.milvus.reading import content

ALIAS = "Document"


def declare(root: Path, docs: Path, target: str, *, chunk: int = 800) -> instep.Instep:
    corpus.project(root, docs, chunk=chunk)
    file = root / "instep.yaml"
    text = file.read_text().replace("type: lance, uri: .instep/index", target)
    file.write_text(text.replace("name: test", "name: test\nengine: inline"))
    return instep.load(root)


@pytest.mark.parametrize("where", ["embedded", "served"])
def test_a_folder_of_documents_is_kept_in_step(request: pytest.FixtureRequest, where: str, tmp_path: Path) -> None:
    target: MilvusTarget = request.getfixturevalue(where)
    docs = tmp_path / "docs"
    corpus.write(docs, range(30))
    declared = f"type: milvus, uri: '{target.uri}', partition_prefix: route"
    project = declare(tmp_path / "project", docs, declared)
    (built,) = project.run()
    assert (built.notes, built.counts.written) == ([], 30)
    assert truth.difference(truth.expected(docs), content(target, ALIAS)) == ""
    text = corpus.text(7)
    assert "of 7" in project.search(text[:800], mode="vector")[0].text
    for number in (1, 2):
        corpus.path(docs, number).write_text(f"{text}\n\nAnd zebras.\n")
    corpus.path(docs, 3).unlink()
    (changed,) = project.run()
    assert (changed.counts.written, changed.counts.deleted, changed.notes) == (2, 1, [])
    assert truth.difference(truth.expected(docs), content(target, ALIAS)) == ""
    for mode in ("text", "hybrid"):
        assert "zebras" in project.search("zebras", mode=mode)[0].text
    assert project.run()[0].counts.read == 0
    (anew,) = project.run(full_refresh=True)
    assert (anew.counts.written, anew.notes) == (29, [])
    assert truth.difference(truth.expected(docs), content(target, ALIAS)) == ""


def test_an_alias_that_was_dropped_is_made_again_though_nothing_has_changed(
    served: MilvusTarget, tmp_path: Path
) -> None:
    docs = tmp_path / "docs"
    corpus.write(docs, range(2))
    project = declare(tmp_path / "project", docs, f"type: milvus, uri: '{served.uri}'")
    project.run()
    before = content(served, ALIAS)
    served._place.call("drop_alias", ALIAS)
    (done,) = project.run()
    assert (done.state, done.counts.read, done.notes) == (JobState.COMPLETED, 0, [])
    assert content(served, ALIAS) == before
    assert [each.job_id for each in project.run()] == [None]


def test_a_chunk_that_is_too_long_is_a_failure_of_its_document_alone(embedded: MilvusTarget, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    corpus.write(docs, range(3))
    corpus.path(docs, 1).write_text("ü " * 30_000)
    project = declare(tmp_path / "project", docs, f"type: milvus, uri: '{embedded.uri}'", chunk=100_000)
    (built,) = project.run()
    assert (built.counts.written, built.counts.failed) == (2, 1)
    (failure,) = project.failures()
    assert (failure.stage, failure.reason) == ("write", "text of 89,999 bytes: Milvus takes 65,535")
    assert len({document for document, _ in content(embedded, ALIAS)}) == 2
