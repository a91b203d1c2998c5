"""The contract of embedders of yours. Inherit `EmbedderContract`, and give it the function and its dimensions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest

from instep.pipeline.documents.embed.embedder import PROBE, check_vectors
from instep.pipeline.documents.functions import EmbedFunction

if TYPE_CHECKING:
    from instep.pipeline.documents.embed.embedder import Vectors

#: Texts as chunks are: short and long ones, of many letters, and two that are alike.
TEXTS = (
    PROBE,
    "x",
    "Zürich, 東京, Ελλάδα, مرحبا and 🙂",
    "def f(a: int) -> int:\n\treturn a << 2  # in code",
    "The tide comes in twice a day.",
    "The tide comes in twice a day!",
    "a long text " * 2_000,
)
#: Numbers of a vector differ by so much, at most, when its text is embedded beside others: models add in another order.
NEAR = 1e-3


class EmbedderContract:
    """One vector for each text, in their order, and for the same text the same one."""

    dimensions: ClassVar[int]

    @pytest.fixture
    def embed(self) -> EmbedFunction:
        """The function from a list of texts to their vectors."""
        raise NotImplementedError

    def vectors(self, embed: EmbedFunction, texts: list[str]) -> Vectors:
        made: Vectors = np.asarray(embed(texts), np.float32)
        assert made.shape == (len(texts), self.dimensions)
        return made

    def test_each_text_has_a_vector_that_is_of_use(self, embed: EmbedFunction) -> None:
        assert check_vectors(self.vectors(embed, [*TEXTS])) == {}

    def test_a_text_has_the_same_vector_alone_and_among_others(self, embed: EmbedFunction) -> None:
        """Vectors are kept by their texts, and what was refused is tried in halves."""
        together = self.vectors(embed, [*TEXTS])
        alone = np.concatenate([self.vectors(embed, [each]) for each in TEXTS])
        backwards = self.vectors(embed, [*TEXTS[::-1]])[::-1]
        assert _apart(together, alone) < NEAR
        assert _apart(together, backwards) < NEAR

    def test_the_same_text_twice_has_two_vectors(self, embed: EmbedFunction) -> None:
        found = self.vectors(embed, ["The same.", "Another.", "The same."])
        assert _apart(found[:1], found[2:]) < NEAR
        assert _apart(found[:1], found[1:2]) > NEAR, "another text has another one"

    def test_as_many_texts_as_there_are_in_a_call(self, embed: EmbedFunction) -> None:
        texts = [f"Text number {number}." for number in range(256)]
        assert check_vectors(self.vectors(embed, texts)) == {}
        assert self.vectors(embed, texts[:1]).shape == (1, self.dimensions)

    def test_the_texts_stay_as_they_are(self, embed: EmbedFunction) -> None:
        texts = [*TEXTS]
        embed(texts)
        assert texts == [*TEXTS]

    def test_tasks_call_it_at_the_same_time(self, embed: EmbedFunction) -> None:
        texts = [[f"Task {task}, text {number}." for number in range(8)] for task in range(8)]
        wanted = [self.vectors(embed, each) for each in texts]
        with ThreadPoolExecutor(8) as pool:
            for _ in range(4):
                for found, before in zip(pool.map(lambda some: self.vectors(embed, some), texts), wanted, strict=True):
                    assert _apart(found, before) < NEAR


def _apart(some: Vectors, others: Vectors) -> float:
    """The largest difference of two numbers, beside the longest vector."""
    longest = float(np.linalg.norm(some, axis=1).max()) or 1.0
    return float(np.abs(some - others).max()) / longest
