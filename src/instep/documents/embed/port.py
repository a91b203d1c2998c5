"""What Instep needs of an embedder. Embedders travel to Spark tasks, so they are picklable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from instep.errors import InstepError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Texts = pa.StringArray | Sequence[str]
    Vectors = np.ndarray[tuple[int, int], np.dtype[np.float32]]


class EmbedRejected(InstepError):
    """These texts will never be embedded as they are (too long, refused, an answer of the wrong shape).

    Says nothing about which one of them is at fault: the caller tries them in halves.
    """


class Embedder(Protocol):
    """Turns texts into vectors; the same text always into the same one."""

    @property
    def dimensions(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """Names the model and everything else that the vectors depend on."""

    @property
    def cached(self) -> bool:
        """Whether looking a vector up is cheaper than computing it again."""

    @property
    def batch(self) -> int:
        """How many texts to hand over at once; a rejected batch costs at most this much again."""

    def embed(self, texts: Texts) -> Vectors:
        """float32, (len(texts), dimensions). Raises `EmbedRejected`, or `Transient` in an outage."""


def as_list(texts: Texts) -> list[str]:
    """The texts as Python strings."""
    values: list[Any] = texts if isinstance(texts, list) else list(texts)
    return [str(each) for each in values]


def check_vectors(vectors: Vectors, dimensions: int) -> dict[int, str]:
    """Which rows are no use for search, and why. Empty when all are good."""
    import numpy as np

    if vectors.ndim != 2 or vectors.shape[1] != dimensions:
        found = vectors.shape[1] if vectors.ndim == 2 else 0
        return dict.fromkeys(range(len(vectors)), f"the vector has {found} dimensions, not {dimensions}")
    # A sum of squares is NaN or infinite if any element is (or would overflow a distance).
    squares = np.einsum("ij,ij->i", vectors, vectors)
    bad = np.flatnonzero(~(np.isfinite(squares) & (squares > 0)))
    return {int(row): _flaw(vectors[row]) for row in bad}


def _flaw(vector: np.ndarray[tuple[int], np.dtype[np.float32]]) -> str:
    import numpy as np

    if np.isnan(vector).any():
        return "the vector has NaN in it"
    if not np.isfinite(vector).all():
        return "the vector has infinity in it"
    return "the vector is zero" if not vector.any() else "the vector is too small or too large for distances"
