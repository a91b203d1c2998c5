"""The embedder whose model comes in a wheel: what it finds near, and that it needs nothing from elsewhere."""

from __future__ import annotations

import pickle
import socket
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from instep.errors import UserError
from instep.pipeline.documents.embed import static
from instep.pipeline.documents.embed.embedder import check_vectors, probe
from instep.pipeline.documents.embed.static import StaticEmbedder


def test_what_means_the_same_in_other_words_is_nearer_than_what_does_not() -> None:
    asked, same, other = StaticEmbedder().embed(
        ["how do I reset my password", "Recover a forgotten login secret", "A recipe for bread with seeds"]
    )
    assert asked @ same > asked @ other + 0.2


@pytest.mark.parametrize("dimensions", [64, 128, 256])
def test_each_text_has_one_unit_vector_whatever_its_neighbours(dimensions: int) -> None:
    texts = ["a", "", " \n", "longer " * 900, "Ünïcode 漢字 🙂", *(f"text {number}" for number in range(70))]
    embedder = StaticEmbedder(dimensions)
    together = embedder.embed(pa.array(["before", *texts])[1:])
    assert together.shape == (len(texts), dimensions)
    assert together.dtype == np.float32
    assert check_vectors(together) == {}
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    for row in (0, 1, 2, 3, 4, 31, 32, 74):
        assert np.allclose(embedder.embed([texts[row]])[0], together[row], atol=1e-6)
    assert embedder.embed([]).shape == (0, dimensions)


def test_it_is_the_mean_of_tokens_as_the_models_own_library_has_it() -> None:
    """Of its own files: the library itself says so for this text (WordLlama 0.4.0, `embed(norm=True)`)."""
    first = StaticEmbedder().embed(["Instep keeps indexes in step with their sources."])[0, :4]
    assert np.allclose(first, GOLDEN, atol=1e-4)


GOLDEN = [-0.0506, 0.0879, -0.0818, -0.0726]


def test_it_asks_nobody_and_travels_to_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    static._model.cache_clear()
    probe(pickle.loads(pickle.dumps(StaticEmbedder())))


def test_the_fingerprint_names_the_version_and_the_length(monkeypatch: pytest.MonkeyPatch) -> None:
    before = StaticEmbedder().fingerprint
    assert StaticEmbedder().fingerprint == before
    assert StaticEmbedder(128).fingerprint != before
    monkeypatch.setattr(static, "version", lambda _: "9.9")
    assert StaticEmbedder().fingerprint != before


def test_without_its_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    static._model.cache_clear()
    monkeypatch.setattr(static, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"instep\[static\]"):
        probe(StaticEmbedder())
