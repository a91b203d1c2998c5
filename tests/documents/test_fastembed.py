"""The embedder fastembed with a model of a folder: real ONNX, run by the real library."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from instep.entities.documents.embedders import embedder_of, trial_of
from instep.errors import UserError
from instep.pipeline.documents.chunk import Chunker
from instep.pipeline.documents.embed.fastembed import FastembedEmbedder
from instep.pipeline.documents.tokens import Tokens
from instep.project import FastembedEmbed
from tests.documents import onnx_model
from tests.documents.chunks import texts_of


def of_words(*words: str, seed: int = 0) -> list[float]:
    """The mean of the words' vectors, of length 1."""
    mean = onnx_model.vectors(seed)[[onnx_model.WORDS.index(each) for each in words]].mean(axis=0)
    return [float(each) for each in mean / np.linalg.norm(mean)]


def test_a_folders_model_gives_its_vectors(tmp_path: Path) -> None:
    made = FastembedEmbedder(str(onnx_model.write(tmp_path / "model")), 4)
    found = made.embed(["printer jam", "paper"] * 40)
    assert found.dtype == np.float32
    assert found.shape == (80, 4)
    assert found[0].tolist() == pytest.approx(of_words("printer", "jam"), abs=1e-6)
    assert found[1].tolist() == pytest.approx(of_words("paper"), abs=1e-6)
    assert made.embed([]).shape == (0, 4)
    first = FastembedEmbedder(str(tmp_path / "model"), 4, pooling="cls").embed(["printer jam"])
    assert first[0].tolist() == pytest.approx(of_words("printer"), abs=1e-6)


def test_prompts_stand_before_queries_and_chunks(tmp_path: Path) -> None:
    folder = str(onnx_model.write(tmp_path / "model"))
    declared = FastembedEmbed(type="fastembed", model=folder, dimensions=4, query_prompt="query: ")
    assert embedder_of(declared, queries=True).embed(["jam"])[0].tolist() == pytest.approx(of_words("query:", "jam"))
    assert embedder_of(declared).embed(["jam"])[0].tolist() == pytest.approx(of_words("jam"))


def test_the_fingerprint_is_of_what_is_in_the_folder(tmp_path: Path) -> None:
    def mark(name: str, **settings: object) -> str:
        return FastembedEmbedder(str(tmp_path / name), 4, **settings).fingerprint  # type: ignore[arg-type]

    for name, seed in (("one", 0), ("copy", 0), ("other", 1)):
        onnx_model.write(tmp_path / name, seed)
    assert mark("one") == mark("copy")
    assert len({mark("one"), mark("other"), mark("one", pooling="cls"), mark("one", prompt="x")}) == 4
    before = mark("one")
    onnx_model.write(tmp_path / "one", seed=2)
    assert mark("one") != before


def test_chunks_are_cut_by_the_models_tokens(tmp_path: Path) -> None:
    folder = str(onnx_model.write(tmp_path / "model"))
    (pieces,) = texts_of(Chunker(20, tokens=Tokens("fastembed", folder)), ("text", " ".join(["paper"] * 50)))
    assert [len(each.split()) for each in pieces] == [20, 20, 10]


def test_what_cannot_be_loaded_is_one_error_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    broken = onnx_model.write(tmp_path / "broken")
    (broken / "model.onnx").write_bytes(b"no model")
    for name, said in (
        (str(tmp_path / "empty"), "no model in ONNX"),
        (str(broken), "cannot be loaded"),
        ("BAAI/no-such-model", "knows no model"),
    ):
        trial = trial_of(FastembedEmbed(type="fastembed", model=name, dimensions=4), str(tmp_path / "cache"))
        assert trial is not None
        with pytest.raises(UserError, match=said):
            trial(print)


def test_a_model_that_cannot_be_downloaded_is_one_error_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place of models is one where nobody listens."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))
    with pytest.raises(UserError, match="cannot be loaded") as caught:
        FastembedEmbedder("BAAI/bge-small-en-v1.5", 384).embed(["a"])
    assert "copy the model's folder" in str(caught.value.hint)
