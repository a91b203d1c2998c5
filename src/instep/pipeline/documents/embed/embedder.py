"""The port of embedders. Embedders travel to Spark tasks, so they are picklable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from instep.errors import InstepError, UserError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from instep.arrow.words import Parted
    from instep.pipeline.documents.embed.meter import Meter

    Texts = pa.StringArray | Sequence[str]
    Vectors = np.ndarray[tuple[int, int], np.dtype[np.float32]]


#: A text that no embedder has a reason to refuse.
PROBE: Final = "Instep keeps indexes in step with their sources."


CHECK_EMBED: Final = "Check `url`, `model` and `dimensions` under `embed`, and try: instep check"


class EmbedRejected(InstepError):
    """An embedder's refusal of texts that it will never embed as they are (too long, refused, an answer of the wrong
    shape).

    Says nothing about which one of them is at fault: the caller tries them in halves.
    """


class WrongShape(UserError, EmbedRejected):
    """Vectors of another number or length than they should have: the project's fault if a harmless text gets such, too,
    and else that of one of the texts.
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
        """The number of texts to embed in one call; a rejected batch costs at most this much again."""

    def embed(self, texts: Texts) -> Vectors:
        """float32, (len(texts), dimensions). Raises `EmbedRejected`; `Transient` in an outage; `UserError` where no
        text would fare better.
        """


@runtime_checkable
class PaidEmbedder(Embedder, Protocol):
    """An embedder that costs money, and has a meter."""

    @property
    def meter(self) -> Meter: ...

    def portions(self, texts: Texts) -> Iterable[int]:
        """The numbers of texts of the requests that these are embedded by."""

    def metered(self, meter: Meter) -> PaidEmbedder:
        """A copy with another meter."""


@runtime_checkable
class RunEmbedder(Embedder, Protocol):
    """An embedder that goes by the runs of texts, which words are made of, too."""

    def embed_runs(self, texts: pa.StringArray, runs: Parted) -> Vectors:
        """The same vectors as `embed` gives texts that have these runs (`arrow.words.runs_of`)."""


def probe(embedder: Embedder) -> None:
    """Embed one harmless text. Raises `UserError` when it is refused: then no text is at fault, the project is."""
    try:
        made = embedder.embed([PROBE])
    except WrongShape:
        raise
    except EmbedRejected as error:
        raise UserError(f"the embedder refuses every text: {error}", hint=CHECK_EMBED) from None
    demand_length(made, 1, embedder.dimensions)
    if flaws := check_vectors(made):
        raise UserError(f"the embedder cannot be used: {flaws[0]}, for any text", hint=CHECK_EMBED)


def query_vectors(embedder: Embedder, queries: Sequence[str]) -> Vectors:
    """The vectors of queries. Raises `UserError` when one of them has none."""
    import numpy as np

    hint = "Search by words: --mode text"
    try:
        made = embedder.embed(queries)
    except WrongShape:
        raise
    except EmbedRejected as error:
        raise UserError(f"the query cannot be embedded: {error}", hint=hint) from None
    for row in np.flatnonzero(~np.isfinite(made).all(axis=1)).tolist():
        flaw = "NaN" if np.isnan(made[row]).any() else "infinity"
        raise UserError(f"the embedder has no vector of the query {queries[row]!r}: it has {flaw} in it", hint=hint)
    return made


def demand_length(vectors: Vectors, count: int, dimensions: int) -> None:
    """Check the number and length of vectors. Raises `WrongShape`."""
    if vectors.ndim != 2 or len(vectors) != count:
        raise WrongShape(f"the embedder gave vectors of the shape {vectors.shape} for {count} texts", hint=CHECK_EMBED)
    if vectors.shape[1] != dimensions:
        raise wrong_length(vectors.shape[1], dimensions)


def wrong_length(found: int, dimensions: int) -> WrongShape:
    """The error for vectors of another length than declared."""
    return WrongShape(
        f"the embedder gives vectors of {found:,} dimensions; the project says {dimensions:,}",
        hint="Set `dimensions` under `embed` to what the model gives, or name another model.",
    )


def as_list(texts: Texts) -> list[str]:
    """The texts as Python strings."""
    values: list[Any] = texts if isinstance(texts, list) else list(texts)
    return [str(each) for each in values]


def check_vectors(vectors: Vectors) -> dict[int, str]:
    """Find vectors that are of no use for search, with the reason. Empty when all are good."""
    import numpy as np

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
