"""A real server that speaks OpenAI's API, llama.cpp's: its vectors are stored as the model gives them."""

from __future__ import annotations

from collections.abc import Iterator

import lance
import pytest

from instep.errors import UserError
from instep.jobs.entity_result import EntityResult
from instep.pipeline.documents.embed.http import close_connections
from tests.documents import gguf_model
from tests.servers.llama import LlamaServer

from . import truth
from .conftest import Location

TEXTS = ["printer jam", "paper", "harbour tide harbour", "tide tables"]


@pytest.fixture(scope="module")
def llama() -> Iterator[LlamaServer]:
    server = LlamaServer()
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_connections()


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Location:
    """A text for each file."""
    folder = tmp_path_factory.mktemp("place")
    made = Location(folder / "project", folder / "docs")
    made.docs.mkdir()
    for at, text in enumerate(TEXTS):
        (made.docs / f"{at}.md").write_text(text)
    return made


def run(place: Location, llama: LlamaServer, key: str = LlamaServer.password, **settings: object) -> EntityResult:
    place.declare()
    about = {"type": "openai", "url": llama.url(), "model": "tiny", "dimensions": gguf_model.DIMENSIONS, **settings}
    declared = ", ".join(f"{name}: {value}" for name, value in {**about, "api_key": key}.items())
    file = place.root / "instep.yaml"
    file.write_text(file.read_text().replace("embed: {type: hashing, dimensions: 32}", f"embed: {{{declared}}}"))
    return place.run()


def vectors(place: Location) -> dict[str, list[float]]:
    """The vectors of what is served, by text."""
    table = lance.dataset(truth.served(place.index)).to_table(columns=["text", "vector"])
    return dict(zip(table["text"].to_pylist(), table["vector"].to_pylist(), strict=True))


def test_a_run_stores_the_vectors_that_the_model_gives(place: Location, llama: LlamaServer) -> None:
    assert run(place, llama).counts.embedded == len(TEXTS)
    found = vectors(place)
    assert set(found) == set(TEXTS)
    for text in TEXTS:
        assert found[text] == pytest.approx(gguf_model.vector(text), abs=1e-6)
    (best, *_) = place.open().search("paper", mode="vector")
    assert best.text == "paper"


def test_a_wrong_key_is_one_error_of_the_project(place: Location, llama: LlamaServer) -> None:
    with pytest.raises(UserError, match=r"refuses to work \(401\): Invalid API Key") as caught:
        run(place, llama, key="not-the-right-one")
    assert "not-the-right-one" not in str(caught.value)
    assert place.open().failures() == []


def test_another_length_is_one_error_of_the_project(place: Location, llama: LlamaServer) -> None:
    """It does not shorten, and says nothing of it: the vectors themselves do."""
    with pytest.raises(UserError, match="gives vectors of 32 dimensions; the project says 8"):
        run(place, llama, dimensions=8, shorten="true")
    assert place.open().failures() == []


def test_a_text_that_is_too_long_for_the_model_fails_alone(place: Location, llama: LlamaServer) -> None:
    """It says 500 of one, as it would say of an outage."""
    (place.docs / "long.md").write_text("tide " * gguf_model.CONTEXT)
    assert run(place, llama).counts.failed == 1
    (failure,) = place.open().failures()
    assert (failure.stage, failure.uri.rpartition("/")[2]) == ("embed", "long.md")
    assert "input (66 tokens) is too large to process" in failure.reason
    assert set(vectors(place)) == set(TEXTS)
