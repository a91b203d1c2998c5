"""Vectors from a model that runs in this process, through the sentence-transformers library."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from instep.domain.fingerprint import digest
from instep.errors import UserError
from instep.pipeline.documents.embed.embedder import as_list
from instep.pipeline.documents.sentence_models import load

if TYPE_CHECKING:
    from instep.pipeline.documents.embed.embedder import Texts, Vectors


@dataclass(frozen=True)
class SentenceTransformersEmbedder:
    """Embeds by a model of sentence-transformers. `model` is a name or a folder; it is loaded once per process, at the
    first text. `prompt` stands before each text, in place of the one that the model itself may have for all.
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
        prompt = [f"prompt={self.prompt}"] if self.prompt else []
        return digest(["sentence-transformers", library.partition(".")[0], self.model, self.dimensions, *prompt])

    @property
    def cached(self) -> bool:
        return True

    def embed(self, texts: Texts) -> Vectors:
        import numpy as np

        plain = as_list(texts)
        if not plain:
            return np.zeros((0, self.dimensions), np.float32)
        made = _model(self.model).encode(
            plain, prompt=self.prompt or None, batch_size=32, convert_to_numpy=True, show_progress_bar=False
        )
        return np.asarray(made, np.float32)


def tokenizer_of(name: str) -> Any:
    """The model's tokenizer, of the library tokenizers. Raises `UserError` if it has none of these."""
    found = getattr(getattr(_model(name), "tokenizer", None), "backend_tokenizer", None)
    if found is None:
        raise UserError(f"model {name!r} has no tokenizer that counts tokens", hint="Count characters.")
    return found


def _model(name: str) -> Any:
    return load("SentenceTransformer", name, "embed")
