"""Sizes of chunks in tokens of the model that embeds them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

import instep
from instep.errors import UserError
from instep.pipeline.documents import sentence_models
from instep.pipeline.documents.chunk import Chunker
from instep.pipeline.documents.embed.static import tokenizer_file
from instep.pipeline.documents.parse import ParseFailure
from instep.pipeline.documents.tokens import TokenCounter, Tokens
from instep.project import Project
from tests.documents import onnx_model
from tests.documents.chunks import texts_of
from tests.e2e import paid_endpoint

STATIC = Tokens("static")
#: A letter is never cut: the last one is of five tokens.
WORDS = st.sampled_from(["tide", "harbour", "ebb. ", "\n\n# Neap\n\n", "unübersehbar", "潮汐", "x" * 90, " ", "🌊"])


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    assert find_spec("wordllama"), "the extra `static` is installed here"
    return Tokenizer.from_file(str(tokenizer_file()))


def count(tokenizer: Tokenizer, text: str) -> int:
    return len(tokenizer.encode(text, add_special_tokens=False).ids)


@given(words=st.lists(WORDS, max_size=60), markdown=st.booleans(), size=st.integers(8, 40), data=st.data())
def test_no_chunk_has_more_tokens_and_nothing_is_lost(
    tokenizer: Tokenizer, words: list[str], markdown: bool, size: int, data: st.DataObject
) -> None:
    text = " ".join(words)
    chunker = Chunker(size, data.draw(st.integers(0, size - 1)), tokens=STATIC)
    (cut,) = chunker.cut([("markdown" if markdown else "text", text)])
    assert not isinstance(cut, ParseFailure)
    assert all(at is not None and text[at:].startswith(chunk) for chunk, at in cut)
    chunks = [each.text for each in cut]
    assert all(count(tokenizer, each) <= size for each in chunks)
    assert set("".join(text.split())) == set("".join("".join(chunks).split()))
    if not chunker.overlap:
        assert "".join(text.split()) == "".join("".join(chunks).split())


def test_a_mark_before_a_first_character_without_a_token_counts(tokenizer: Tokenizer) -> None:
    text = "潮汐 🌊 🌊 🌊"
    (chunks,) = texts_of(Chunker(21, tokens=STATIC), ("text", text))
    assert count(tokenizer, text) == 22
    assert all(count(tokenizer, each) <= 21 for each in chunks)


def test_chunks_are_as_full_as_characters_do_not_say(tokenizer: Tokenizer) -> None:
    text = "the tide of the sea is low. " * 40
    (chunks,) = texts_of(Chunker(50, tokens=STATIC), ("text", text))
    assert all(35 <= count(tokenizer, each) <= 50 for each in chunks[:-1])
    assert all(len(each) > 130 for each in chunks[:-1])


def test_openai_models_count_as_they_do() -> None:
    """By the table of text-embedding-3-small (cl100k_base) these are six tokens, and seven."""
    by_openai = Chunker(6, tokens=Tokens("openai", "text-embedding-3-small"))
    (chunks,) = texts_of(by_openai, ("text", "hello world this is a test of"))
    assert chunks == ["hello world this is a test", "of"]
    with pytest.raises(UserError, match="how the model 'my-model' counts tokens"):
        Tokens("openai", "my-model").splitter(_splitter_class(), 5, 0)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """sentence-transformers as far as it has a tokenizer: that of a folder, which cuts and fills up as models do."""

    class SentenceTransformer:
        def __init__(self, name: str) -> None:
            if not (Path(name) / "tokenizer.json").exists():
                self.tokenizer = SimpleNamespace()  # One in Python, which some old models have.
                return
            own = Tokenizer.from_file(f"{name}/tokenizer.json")
            own.enable_truncation(8)
            own.enable_padding(length=8)
            self.tokenizer = SimpleNamespace(backend_tokenizer=own)

    module = ModuleType("sentence_transformers")
    module.SentenceTransformer = SentenceTransformer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    sentence_models.load.cache_clear()
    yield
    sentence_models.load.cache_clear()


def test_models_of_sentence_transformers_count_by_their_own_tokenizers(
    tmp_path: Path, tokenizer: Tokenizer, library: None
) -> None:
    (tmp_path / "pieces").mkdir()
    shutil.copy(tokenizer_file(), tmp_path / "pieces" / "tokenizer.json")
    words = onnx_model.write(tmp_path / "words")
    text = "unübersehbar " * 60
    assert count(tokenizer, "unübersehbar") > 3
    for folder, counted in ((tmp_path / "pieces", lambda each: count(tokenizer, each)), (words, _words)):
        tokens = Tokens("sentence-transformers", str(folder))
        (chunks,) = texts_of(Chunker(20, tokens=tokens), ("text", text))
        sizes = list(map(counted, chunks))
        assert max(sizes) <= 20
        assert min(sizes[:-1]) > 20 - counted("unübersehbar")
        assert sum(map(_words, chunks)) == 60
        assert TokenCounter(tokens).count(text) == counted(text.strip())


def _words(text: str) -> int:
    return len(text.split())


def test_a_model_whose_tokenizer_counts_nothing_is_one_error(tmp_path: Path, library: None) -> None:
    with pytest.raises(UserError, match="has no tokenizer that counts") as caught:
        Tokens("sentence-transformers", str(tmp_path)).splitter(_splitter_class(), 5, 0)
    assert caught.value.hint == "Count characters."


def _splitter_class() -> Any:
    from semantic_text_splitter import TextSplitter

    return TextSplitter


def test_the_fingerprint_is_of_the_tokenizer_and_that_of_characters_stays() -> None:
    prints = {
        each.fingerprint for each in (Chunker(9), Chunker(9, tokens=STATIC), Chunker(9, tokens=Tokens("openai", "m")))
    }
    assert len(prints) == 3
    assert Chunker(9).characters == 9
    assert Chunker(9, 1, tokens=STATIC).characters == 32


def declared(root: Path, chunk: dict[str, Any], embed: dict[str, Any]) -> Project:
    entity = {"source": {"type": "files", "path": "docs"}, "chunk": chunk, "embed": embed, "target": "index"}
    targets = {"index": {"type": "lance", "uri": "index"}}
    return Project.model_validate(
        {"name": "p", "root": root, "engine": "inline", "targets": targets, "entities": {"Page": entity}}
    )


def test_documents_are_cut_by_tokens(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# Tides\n\n" + "The tide of the harbour is low at ebb. " * 60)
    project = instep.Instep(declared(tmp_path, {"unit": "tokens", "size": 30}, {"type": "static"}))
    (result,) = project.run()
    found = project.search("tide", mode="text", limit=100)
    assert len(found) == result.counts.rows_written > 10
    assert all(count(tokenizer, each.text) <= 30 for each in found)
    (plan,) = instep.Instep(declared(tmp_path, {"unit": "tokens", "size": 31}, {"type": "static"})).plan()
    assert str(plan.kind) == "rebuild"


@pytest.mark.parametrize(
    ("chunk", "embed", "said"),
    [
        ({"unit": "tokens", "size": 9}, {"type": "hashing"}, "cannot count the tokens of the embedder `hashing`"),
        ({"unit": "tokens"}, {"type": "static"}, "set the maximum number of tokens"),
        ({"unit": "token", "size": 9}, {"type": "static"}, "characters"),
        ({"unit": "tokens", "size": 9, "overlap": 9}, {"type": "static"}, "must be smaller"),
        ({"unit": "tokens", "size": 9, "type": "python", "function": "a:b"}, {"type": "static"}, "your function"),
    ],
)
def test_what_has_no_tokens_is_refused(tmp_path: Path, chunk: Any, embed: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        declared(tmp_path, chunk, embed)


def test_a_model_that_is_not_known_stops_the_run_before_anything_is_embedded(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("The tide of the harbour is low at ebb. " * 60)
    embed = {"type": "openai", "url": "http://127.0.0.1:9", "model": "my-model", "dimensions": 3}
    project = instep.Instep(declared(tmp_path, {"unit": "tokens", "size": 30}, embed))
    with pytest.raises(UserError, match="counts tokens"):
        project.run()


@given(words=st.lists(WORDS | st.text("aeiouxyzÄß0189 .,;:!?()[]{}<>/\\'\"\n\t-_=+ñç語潮", max_size=30), max_size=60))
def test_tokens_are_counted_as_the_model_counts_them(words: list[str]) -> None:
    """But for a single letter, which is never cut, however many tokens it has."""
    text = ("".join(words) + " end").strip()
    found = TokenCounter(Tokens("openai", "text-embedding-3-small")).count(text)
    assert found == paid_endpoint.tokens([text])


def test_tokens_of_an_unknown_model_are_not_counted() -> None:
    with pytest.raises(UserError, match="not known how the model 'mine' counts"):
        TokenCounter(Tokens("openai", "mine"))
