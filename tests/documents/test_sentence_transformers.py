"""The embedder sentence-transformers: its calls of the library, and what that makes of them where PyTorch is."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from instep.entities.documents.embedders import embedder_of, trial_of
from instep.errors import UserError
from instep.pipeline.documents import sentence_models
from instep.pipeline.documents.chunk import Chunker
from instep.pipeline.documents.tokens import Tokens
from instep.project import SentenceTransformersEmbed
from tests.documents.chunks import texts_of

installed = pytest.mark.skipif(
    find_spec("sentence_transformers") is None,
    reason="PyTorch is too large for each run (5.5 GB): pip install 'instep[sentence-transformers]'",
)


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    sentence_models.load.cache_clear()
    yield
    sentence_models.load.cache_clear()


def declared(model: str, dimensions: int = 16, **prompts: str) -> SentenceTransformersEmbed:
    about = {"type": "sentence-transformers", "model": model, "dimensions": dimensions, **prompts}
    return SentenceTransformersEmbed.model_validate(about)


def trial(declaration: SentenceTransformersEmbed, folder: Path) -> None:
    asked = trial_of(declaration, str(folder))
    assert asked is not None
    asked(print)


class Recorded:
    """The library's model, as far as it is called: keeps the calls, and gives vectors of two."""

    made: list[Recorded]

    def __init__(self, name: str) -> None:
        if name == "missing":
            raise OSError("We couldn't connect to 'https://huggingface.co'")
        self.name = name
        self.calls: list[tuple[list[str], dict[str, Any]]] = []
        self.made.append(self)

    def encode(self, texts: list[str], **options: Any) -> Any:
        self.calls.append((texts, options))
        return np.array([[len(each), 1.0] for each in texts], np.float64)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> type[Recorded]:
    """A module in place of the library."""
    kind = type("SentenceTransformer", (Recorded,), {"made": []})
    module = ModuleType("sentence_transformers")
    module.SentenceTransformer = kind  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    return kind


def test_the_library_gets_the_texts_the_prompt_and_batches_of_32(library: type[Recorded]) -> None:
    about = declared("some", 2, query_prompt="query: ", document_prompt="passage: ")
    found = embedder_of(about).embed(["a", "bb"])
    assert found.dtype == np.float32
    assert found.tolist() == [[1, 1], [2, 1]]
    embedder_of(about, queries=True).embed(["ccc"])
    embedder_of(declared("some", 2)).embed(["d"])
    (model,) = library.made
    assert [(texts, options["prompt"]) for texts, options in model.calls] == [
        (["a", "bb"], "passage: "),
        (["ccc"], "query: "),
        (["d"], None),
    ]
    assert all(options["batch_size"] == 32 and not options["show_progress_bar"] for _, options in model.calls)


def test_a_model_is_loaded_at_the_first_text_and_once(library: type[Recorded]) -> None:
    made = pickle.loads(pickle.dumps(embedder_of(declared("some", 2))))
    assert made.embed([]).shape == (0, 2)
    assert library.made == []
    made.embed(["a"])
    embedder_of(declared("some", 2)).embed(["b"])
    assert [each.name for each in library.made] == ["some"]


def test_another_length_is_one_error_of_the_project(library: type[Recorded], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="gives vectors of 2 dimensions; the project says 3"):
        trial(declared("some", 3), tmp_path)


def test_a_model_that_cannot_be_loaded_is_one_error_of_the_project(library: type[Recorded], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model 'missing' cannot be loaded: OSError: We couldn't connect") as caught:
        trial(declared("missing"), tmp_path)
    assert "`model` under `embed`" in str(caught.value.hint)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(UserError, match="not installed") as caught:
        trial(declared("some"), tmp_path)
    assert "instep[sentence-transformers]" in str(caught.value.hint)


def test_a_library_that_is_broken_is_said_to_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """PyTorch raises this where a library of CUDA is missing."""
    (tmp_path / "sentence_transformers.py").write_text("raise ValueError('libcublasLt.so not found')")
    monkeypatch.delitem(sys.modules, "sentence_transformers", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match=r"cannot be imported: ValueError: libcublasLt\.so not found"):
        trial(declared("some"), tmp_path)


def test_the_fingerprint_names_model_length_and_prompt() -> None:
    made = [declared("a"), declared("b"), declared("a", 8), declared("a", document_prompt="p: ")]
    assert len({embedder_of(each).fingerprint for each in made}) == 4
    assert embedder_of(made[3], queries=True).fingerprint == embedder_of(made[0]).fingerprint


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "jam", "paper", "printer", "query", ":"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny BERT with weights by chance."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    torch.manual_seed(7)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(WORDS), initializer_range=2.0, **sizes)).save_pretrained(folder)
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


@installed
def test_vectors_are_the_models_own_whatever_the_neighbours(bert: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    made = embedder_of(declared(str(bert)))
    texts = ["printer jam", "paper", *["jam " * length for length in range(1, 40)]]
    found = made.embed(texts)
    assert found.shape == (41, 16)
    assert found.dtype == np.float32
    own = SentenceTransformer(str(bert))
    assert np.allclose(found, [own.encode(each) for each in texts], atol=1e-4)
    assert not np.allclose(found[0], found[1], atol=0.1)
    trial(declared(str(bert)), tmp_path)
    with pytest.raises(UserError, match="gives vectors of 16 dimensions; the project says 8"):
        trial(declared(str(bert), 8), tmp_path)


@installed
def test_a_prompt_stands_before_each_text_and_in_place_of_the_models_own(bert: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    plain = embedder_of(declared(str(bert))).embed(["query : paper", "query : jam"])
    asked = declared(str(bert), query_prompt="query : ")
    assert np.allclose(embedder_of(asked, queries=True).embed(["paper", "jam"]), plain, atol=1e-4)
    own = SentenceTransformer(str(bert), prompts={"mine": "printer : "}, default_prompt_name="mine")
    own.save(str(tmp_path / "own"))
    assert json.loads((tmp_path / "own" / "config_sentence_transformers.json").read_text())["default_prompt_name"]
    asked = declared(str(tmp_path / "own"), query_prompt="query : ")
    assert np.allclose(embedder_of(asked, queries=True).embed(["paper", "jam"]), plain, atol=1e-4)
    assert not np.allclose(embedder_of(asked).embed(["paper"]), embedder_of(declared(str(bert))).embed(["paper"]))


@installed
def test_chunks_are_cut_by_its_tokens(bert: Path) -> None:
    chunker = Chunker(20, 0, False, Tokens("sentence-transformers", str(bert)))
    (pieces,) = texts_of(chunker, ("text", " ".join(["paper"] * 50)))
    assert [len(each.split()) for each in pieces] == [20, 20, 10]


@installed
@pytest.mark.parametrize("broken", ["model.safetensors", "config.json"])
def test_a_broken_folder_is_one_error_of_the_project(bert: Path, tmp_path: Path, broken: str) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    for each in bert.iterdir():
        (folder / each.name).write_bytes(b"no model" if each.name == broken else each.read_bytes())
    with pytest.raises(UserError, match="cannot be loaded"):
        trial(declared(str(folder)), tmp_path)
    with pytest.raises(UserError, match="cannot be loaded"):
        trial(declared(str(tmp_path / "nowhere")), tmp_path)
