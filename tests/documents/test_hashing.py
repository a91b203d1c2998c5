"""The hashing embedder: golden vectors, and the same result however the texts are batched."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.arrow.words import runs_of
from instep.errors import UserError
from instep.pipeline.documents.embed.embedder import check_vectors, demand_length
from instep.pipeline.documents.embed.hashing import HashingEmbedder


def test_golden_vectors() -> None:
    vectors = HashingEmbedder(8).embed(["The quick brown fox", "the THE fox!", "", "Ünïcode “words”"])
    assert vectors.dtype == np.float32
    assert np.allclose(vectors, GOLDEN, atol=1e-4)


GOLDEN = [
    [0.0, -0.4472, -0.2236, 0.2236, -0.2236, 0.6708, -0.4472, 0.0],
    [-0.1890, -0.5669, 0.0, 0.0, -0.1890, 0.1890, -0.7559, 0.0],
    [0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    [0.3536, 0.0, 0.0, 0.0, 0.3536, 0.3536, -0.3536, 0.7071],
]


def test_case_and_punctuation_do_not_count_but_words_and_their_number_do() -> None:
    one, same, other, twice = HashingEmbedder().embed(
        ["Über smart—fox, x_1", "“über”  SMART FOX X_1", "fox", "fox a a"]
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert not np.array_equal(other, twice)


@given(st.lists(st.text(max_size=60), max_size=12), st.sampled_from([1, 7, 384]))
def test_each_text_has_one_unit_vector_independent_of_its_neighbours(texts: list[str], dimensions: int) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    embedder = HashingEmbedder(dimensions)
    together = embedder.embed(texts)
    assert together.shape == (len(texts), dimensions)
    assert check_vectors(together) == {}
    assert np.allclose(np.linalg.norm(together, axis=1), 1)
    for text, vector in zip(texts, together, strict=True):
        assert np.array_equal(embedder.embed([text])[0], vector)
    sliced = pa.array(["before", *texts, "after"])[1 : len(texts) + 1]
    assert np.array_equal(embedder.embed(sliced), together)


@given(st.lists(st.text(max_size=30) | st.from_regex(r"[\w .—_]{0,30}"), max_size=12), st.sampled_from([1, 7, 384]))
def test_vectors_by_runs_that_are_known_are_the_same(texts: list[str], dimensions: int) -> None:
    column = pa.array(["before", *(text.encode("utf-8", "replace").decode() for text in texts), "after"])
    runs, some = runs_of(column).of(1, len(texts) + 1), column[1 : len(texts) + 1]
    embedder = HashingEmbedder(dimensions)
    assert np.array_equal(embedder.embed_runs(some, runs), embedder.embed(some))


def test_blocks_do_not_show() -> None:
    texts = [f"text {number} " + "word " * (number % 700) for number in range(2_000)] + ["long " * 60_000]
    together = HashingEmbedder(16).embed(texts)
    for row in range(0, len(texts), 97):
        assert np.array_equal(together[row], HashingEmbedder(16).embed([texts[row]])[0])


def test_no_text_is_zero_not_even_one_whose_words_cancel_out() -> None:
    words = [f"w{number}" for number in range(40)]
    pairs = [f"{one} {other}" for one in words for other in words]
    assert check_vectors(HashingEmbedder(2).embed(["", "!?", " ", *pairs])) == {}


def test_texts_that_share_words_are_nearer() -> None:
    query, near, far = HashingEmbedder().embed(["how to bake bread", "bread: bake it so", "engine of a car"])
    assert query @ near > query @ far + 0.2


def test_a_text_of_one_strange_word_is_not_near_to_a_question() -> None:
    request, right = HashingEmbedder().embed(["validate data with type hints", "type hints validate your data"])
    strange = HashingEmbedder().embed([f"c3RyYW5nZQ{number}" for number in range(5_000)])
    assert (strange @ request).max() < 0.4 < request @ right


def test_travels_and_has_a_fingerprint_of_its_dimensions() -> None:
    embedder = HashingEmbedder(12)
    assert pickle.loads(pickle.dumps(embedder)) == embedder
    assert embedder.fingerprint != HashingEmbedder(13).fingerprint


@pytest.mark.parametrize(
    ("vector", "reason"),
    [
        ([0.0, 0.0], "zero"),
        ([float("nan"), 1.0], "NaN"),
        ([float("inf"), 1.0], "infinity"),
        ([3e38, 3e38], "too small or too large"),
    ],
)
def test_vectors_that_are_no_use_are_named(vector: list[float], reason: str) -> None:
    flaws = check_vectors(np.array([[1.0, 0.0], vector], np.float32))
    assert list(flaws) == [1]
    assert reason in flaws[1]


@pytest.mark.parametrize("shape", [(2, 3), (1, 2), (4,)])
def test_vectors_of_another_shape_are_the_projects_fault(shape: tuple[int, ...]) -> None:
    demand_length(np.ones((2, 2), np.float32), 2, 2)
    with pytest.raises(UserError):
        demand_length(np.ones(shape, np.float32), 2, 2)
