"""Vectors from a small model whose weights come in a wheel: a vector for each token, and their mean for a text.

The model is WordLlama's `l2_supercat`: 32,000 tokens, 256 dimensions, trained so that its first 64 or 128 are a model,
too. Its files are read from the installed package, which is not imported: it would bring a good deal that is of no use
here. Nothing is downloaded. Looking vectors up would cost about as much as computing them: hence no cache.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from instep.domain.fingerprint import digest
from instep.errors import UserError
from instep.pipeline.documents.embed.embedder import as_list

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Tokenizer

    from instep.pipeline.documents.embed.embedder import Texts, Vectors

_LIBRARY: Final = "wordllama"
_WEIGHTS: Final = "weights/l2_supercat_256.safetensors"
_TOKENIZER: Final = "tokenizers/l2_supercat_tokenizer_config.json"
#: A text whose vector's cosine with that of a query is below this means something else: on two judged collections one
#: in six or seven of such hits was relevant, and every second one of those above 0.6. See docs/quality.md.
WEAK: Final = 0.3
#: Texts whose tokens are looked up at a time: their vectors stay in the processor's cache.
_BLOCK: Final = 32


@dataclass(frozen=True)
class StaticEmbedder:
    """Embeds by a static model, which is loaded once per process, at the first text. Vectors have length 1."""

    dimensions: int = 256

    @property
    def fingerprint(self) -> str:
        try:
            library = version(_LIBRARY)
        except PackageNotFoundError:
            library = ""
        return digest(["static", _LIBRARY, library, _WEIGHTS, self.dimensions])

    @property
    def cached(self) -> bool:
        return False

    @property
    def batch(self) -> int:
        return 1_024

    def embed(self, texts: Texts) -> Vectors:
        import numpy as np

        model = _model()
        plain = as_list(texts)
        vectors: Vectors = np.empty((len(plain), self.dimensions), np.float32)
        for first in range(0, len(plain), _BLOCK):
            last = min(first + _BLOCK, len(plain))
            # A text without tokens, which an empty one is, has the vector of the unknown.
            coded = model.tokenizer.encode_batch_fast(plain[first:last], add_special_tokens=False)
            tokens = [each.ids or [0] for each in coded]
            starts = np.cumsum([0, *map(len, tokens[:-1])])
            ids = np.concatenate([np.array(each, np.int32) for each in tokens])
            np.add.reduceat(model.weights[ids, : self.dimensions], starts, axis=0, out=vectors[first:last])
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors


def tokenizer_file() -> Path:
    """The file of the model's tokenizer. Raises `UserError` if the model is not installed."""
    return _folder() / _TOKENIZER


def _folder() -> Path:
    found = find_spec(_LIBRARY)
    if found is None or not found.submodule_search_locations:
        raise _not_installed()
    return Path(found.submodule_search_locations[0])


def _not_installed() -> UserError:
    return UserError("the embedder `static` needs a model", hint="Run: pip install 'instep[static]'")


class _Model(NamedTuple):
    tokenizer: Tokenizer
    weights: np.ndarray[tuple[int, int], np.dtype[np.float32]]


@functools.lru_cache(maxsize=1)
def _model() -> _Model:
    import numpy as np

    try:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

    except ImportError:
        raise _not_installed() from None
    folder = _folder()
    try:
        weights: Any = load_file(folder / _WEIGHTS)["embedding.weight"]
        tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
    except Exception as error:  # The tokenizers' own errors have no class of theirs.
        raise UserError(
            f"the model in the package {_LIBRARY} cannot be read: {type(error).__name__}",
            hint="Run: pip install --force-reinstall 'instep[static]'",
        ) from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return _Model(tokenizer, weights.astype(np.float32))
