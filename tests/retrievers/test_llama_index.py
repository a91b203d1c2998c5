"""LlamaIndex finds what a project serves, with all options of a search."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode

from instep.app import Instep
from instep.errors import UserError
from instep.retrievers.hits import metadata_of
from instep.retrievers.llama_index import InstepRetriever
from tests.retrievers.notes import SO_OFTEN, during_rebuilds, indexed


def titles(found: Sequence[NodeWithScore]) -> list[str]:
    return sorted(each.node.metadata["title"] for each in found)


def test_a_node_is_a_hit_with_its_score_and_all_that_is_known_of_it(project: Instep) -> None:
    [hit] = project.search("tame zebra", limit=1, mode="text")
    [status] = project.status()
    [found] = InstepRetriever(project, limit=1, mode="text").retrieve("tame zebra")
    node = found.node
    assert isinstance(node, TextNode)
    assert (node.node_id, node.text, found.score) == (hit.chunk_id, hit.text, hit.score)
    assert node.ref_doc_id == hit.document_id
    assert node.metadata == metadata_of(hit)
    assert (node.metadata["instance"], node.metadata["watermark"]) == (status.instance, status.watermark)


def test_a_language_model_is_told_the_title_and_the_source_alone(project: Instep) -> None:
    [found] = InstepRetriever(project, limit=1, mode="text").retrieve("tame zebra")
    told = found.node.get_content(MetadataMode.LLM)
    named = {line.partition(": ")[0] for line in told.partition("\n\n")[0].splitlines()}
    assert named == {"source_uri", "title"}
    assert "document_id" not in found.node.get_content(MetadataMode.EMBED)


def test_options_of_a_search_are_those_of_the_retriever(project: Instep) -> None:
    assert titles(InstepRetriever(project, where="team = 'herd'").retrieve("zebra")) == ["Open", "Wild"]
    assert titles(InstepRetriever(project).retrieve("zebra")) == ["Open", "Tame", "Wild"]
    assert "Closed" in titles(InstepRetriever(project, principals=["group:ops"]).retrieve("zebra"))
    [found] = InstepRetriever(project, limit=1, mode="vector").retrieve("wild zebra")
    assert (found.node.metadata["mode"], found.node.metadata["score_kind"]) == ("vector", "cosine")


def test_a_project_is_opened_from_its_folder(project: Instep) -> None:
    assert len(InstepRetriever(project.project.root, limit=2).retrieve("zebra")) == 2


def test_awaited_it_finds_the_same(project: Instep) -> None:
    retriever = InstepRetriever(project, where="team = 'herd'")
    assert titles(asyncio.run(retriever.aretrieve("zebra"))) == ["Open", "Wild"]


def test_mistakes_are_told_as_those_of_a_search(project: Instep) -> None:
    with pytest.raises(UserError, match="there is no column 'tame'"):
        InstepRetriever(project, where="tame = 1").retrieve("zebra")
    with pytest.raises(UserError, match="no option 'similarity_top_k'"):
        InstepRetriever(project, similarity_top_k=1)  # type: ignore[call-arg]  # that is refused


@SO_OFTEN
def test_it_has_no_error_and_no_empty_answer_during_rebuilds(tmp_path: Path, rebuilds: int) -> None:
    retriever = InstepRetriever(indexed(tmp_path))

    def ask() -> set[int | None]:
        found = retriever.retrieve("zebra")
        assert titles(found) == ["Open", "Tame", "Wild"]
        return {each.metadata["watermark"] for each in found}

    during_rebuilds(tmp_path, ask, rebuilds)
