"""Vectors from a model that runs in this process, through the sentence-transformers library."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from instep.domain.fingerprint import digest
from instep.errors import UserError
from instep.pipeline.documents.embed.embedder import as_list

if TYPE_CHECKING:
    from instep.pipeline.documents.embed.embedder import Texts, Vectors


@dataclass(frozen=True)
class SentenceTransformersEmbedder:
    """`model` is a name or a folder; it is loaded once per process, at the first text. `prompt` stands before each
    text.
    """

    model: str
    dimensions: int
    prompt: str = ""
    batch: int = 256

    @property
    def fingerprint(self) -> str:
        try:
            library = version("sentence-transformers")
        except PackageNotFoundError:
            library = ""
        # Patch releases do not change vectors; a rebuild costs too much to ask for it each time.
        prompt = [self.prompt] if self.prompt else []
        return digest(["sentence-transformers", library.partition(".")[0], self.model, self.dimensions, *prompt])

    @property
    def cached(self) -> bool:
        return True

    def embed(self, texts: Texts) -> Vectors:
        import numpy as np

        plain = [self.prompt + each for each in as_list(texts)]
        model = _model(self.model)
        made = model.encode(plain, batch_size=32, convert_to_numpy=True, show_progress_bar=False)
        return np.asarray(made, np.float32).reshape(len(plain), -1)


def tokenizer_of(name: str) -> Any:
    """The model's tokenizer, of the library tokenizers. Raises `UserError` if it has none of these."""
    found = getattr(getattr(_model(name), "tokenizer", None), "backend_tokenizer", None)
    if found is None:
        raise UserError(f"model {name!r} has no tokenizer that counts tokens", hint="Count characters.")
    return found


@functools.lru_cache(maxsize=1)
def _model(name: str) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise UserError(
            "the package sentence-transformers is not installed",
            hint="Run: pip install 'instep[sentence-transformers]'",
        ) from None
    try:
        return SentenceTransformer(name)
    except (OSError, ValueError) as error:
        raise UserError(
            f"model {name!r} cannot be loaded: {type(error).__name__}", hint="Check `model` under `embed`."
        ) from error
