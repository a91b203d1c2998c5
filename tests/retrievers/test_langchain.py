"""LangChain finds what a project serves, with its own standard tests and with all options of a search."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langchain_tests.integration_tests import RetrieversIntegrationTests

from instep.app import Instep
from instep.errors import UserError
from instep.retrievers.langchain import InstepRetriever
from tests.retrievers.notes import SO_OFTEN, during_rebuilds, indexed


@pytest.mark.anyio
class TestStandard(RetrieversIntegrationTests):
    """The suite of `langchain-tests`."""

    @pytest.fixture(autouse=True)
    def _project(self, project: Instep) -> None:
        self._opened = project

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @property
    def retriever_constructor(self) -> type[InstepRetriever]:
        return InstepRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"project": self._opened}

    @property
    def retriever_query_example(self) -> str:
        return "zebra"

    @property
    def num_results_arg_name(self) -> str:
        return "limit"


def titles(found: list[Document]) -> list[str]:
    return sorted(each.metadata["title"] for each in found)


def test_a_document_is_a_hit_with_all_that_is_known_of_it(project: Instep) -> None:
    [hit] = project.search("tame zebra", limit=1, mode="text")
    [status] = project.status()
    [document] = InstepRetriever(project=project, limit=1, mode="text").invoke("tame zebra")
    assert (document.id, document.page_content) == (hit.chunk_id, "# Tame\n\nThe tame zebra.")
    assert document.metadata == {
        "entity": "Note",
        "mode": "text",
        "weak": None,
        "score": hit.score,
        "score_kind": "bm25",
        "document_id": hit.document_id,
        "chunk_id": hit.chunk_id,
        "chunk_index": 0,
        "source_uri": hit.source_uri,
        "title": "Tame",
        "instance": status.instance,
        "columns": {"team": "zoo"},
        "watermark": status.watermark,
    }
    assert document.metadata["instance"]
    assert document.metadata["watermark"]


def test_options_of_the_retriever_hold_for_all_calls_and_those_of_a_call_for_it_alone(project: Instep) -> None:
    retriever = InstepRetriever(project=project, where="team = 'herd'")
    assert titles(retriever.invoke("zebra")) == ["Open", "Wild"]
    assert titles(retriever.invoke("zebra", where="team = 'zoo'")) == ["Tame"]
    assert titles(retriever.invoke("zebra")) == ["Open", "Wild"]
    [document] = retriever.invoke("wild", limit=1, mode="vector")
    assert (document.metadata["mode"], document.metadata["score_kind"]) == ("vector", "cosine")


def test_a_reader_finds_what_its_principals_may_read_and_others_do_not(project: Instep) -> None:
    assert "Closed" in titles(InstepRetriever(project=project, principals=["group:ops"]).invoke("zebra"))
    nobody = InstepRetriever(project=project)
    assert titles(nobody.invoke("zebra")) == ["Open", "Tame", "Wild"]
    assert titles(nobody.invoke("closed zebra", principals=["group:ops"], limit=1, mode="text")) == ["Closed"]


@pytest.mark.parametrize("place", ["folder", "file", "text"])
def test_a_project_is_opened_from_where_it_is(project: Instep, place: str) -> None:
    folder = project.project.root
    places: dict[str, Path | str] = {"folder": folder, "file": folder / "instep.yaml", "text": str(folder)}
    assert len(InstepRetriever(project=places[place], limit=2).invoke("zebra")) == 2


def test_awaited_it_finds_the_same_with_the_same_options(project: Instep) -> None:
    retriever = InstepRetriever(project=project, where="team = 'herd'")

    async def found() -> list[list[Document]]:
        return [await retriever.ainvoke("zebra"), await retriever.ainvoke("zebra", where="team = 'zoo'")]

    assert [titles(each) for each in asyncio.run(found())] == [["Open", "Wild"], ["Tame"]]


def test_it_is_a_step_of_a_chain_and_answers_a_batch(project: Instep) -> None:
    chain = InstepRetriever(project=project, limit=1, mode="text") | RunnableLambda(titles)
    assert chain.batch(["tame zebra", "wild zebra"]) == [["Tame"], ["Wild"]]


def test_mistakes_are_told_as_those_of_a_search(project: Instep) -> None:
    with pytest.raises(UserError, match="there is no column 'tame'"):
        InstepRetriever(project=project, where="tame = 1").invoke("zebra")
    with pytest.raises(UserError, match="no option 'k'"):
        InstepRetriever(project=project).invoke("zebra", k=3)


@pytest.mark.parametrize("option", [{"k": 1}, {"filter": "team = 'herd'"}, {"search_kwargs": {}}, {"mode": "words"}])
def test_what_is_no_option_is_not_passed_over(project: Instep, option: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"(no option|there is no mode) '\w+'|'words'"):
        InstepRetriever(project=project, **option)


def test_what_langchain_gives_every_retriever_is_taken(project: Instep) -> None:
    retriever = InstepRetriever(project=project, tags=["mine"], metadata={"of": "me"}, name="notes")
    assert retriever.invoke("zebra")


@SO_OFTEN
def test_a_chain_has_no_error_and_no_empty_answer_during_rebuilds(tmp_path: Path, rebuilds: int) -> None:
    retriever = InstepRetriever(project=indexed(tmp_path))

    def ask() -> set[int | None]:
        found = retriever.invoke("zebra")
        assert titles(found) == ["Open", "Tame", "Wild"]
        assert all(each.metadata["instance"] for each in found)
        return {each.metadata["watermark"] for each in found}

    during_rebuilds(tmp_path, ask, rebuilds)
