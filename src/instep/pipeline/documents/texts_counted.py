"""The texts that a run would have embedded, and their tokens: nothing is asked of the embedder, and nothing stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pyarrow as pa

from instep.domain.identity import content_hash
from instep.domain.manifest import DocumentChange
from instep.domain.waves import Wave, WaveSlice
from instep.domain.words import Searched
from instep.errors import UserError
from instep.pipeline.documents.comparison import EmptyTarget
from instep.pipeline.documents.embed.embedder import as_list
from instep.pipeline.documents.pipeline import DocumentProgram
from instep.pipeline.documents.rows import change_batch
from instep.pipeline.documents.tokens import CHARACTERS, TokenCounter, Tokens
from instep.pipeline.documents.vectors import EmbeddingCache

if TYPE_CHECKING:
    from instep.pipeline.documents.embed.embedder import Texts, Vectors
    from instep.targets.document_target import DocumentTarget

#: So many texts are counted exactly, which takes about a millisecond each; then one of so many, for all.
_EXACT: Final = 1_000
_ONE_OF: Final = 20
#: Nothing is searched in what is only counted: its words would take as long as all else.
_TITLES: Final = Searched("none", (("title", 1),))


def given_texts(program: DocumentProgram, changes: Sequence[DocumentChange], take: Callable[[list[str]], None]) -> None:
    """Hand over the texts that would be embedded of these documents, as if nothing were indexed."""
    _listened(program, EmptyTarget(lambda rows: None), WaveSlice("", 0, 0, len(changes), list(changes)), take)


def wave_texts(program: DocumentProgram, wave: Wave, take: Callable[[list[str]], None]) -> None:
    """Hand over the texts that a wave would have embedded, if no vectors were kept."""
    target = program.target
    into = EmptyTarget(lambda rows: None, target.writer(program.physical, program.base), target.kind)
    for each in wave.slices:
        _listened(program, into, each, take)


def _listened(
    program: DocumentProgram, into: EmptyTarget, changes: WaveSlice, take: Callable[[list[str]], None]
) -> None:
    listening = _Listening(program.embedder.dimensions, take)
    program = replace(program, target=cast("DocumentTarget", into), embedder=listening, cache=None, searched=_TITLES)
    for _ in program.write(program.read(iter([change_batch(changes)]))):
        pass


@dataclass(frozen=True)
class _Listening:
    """Replaces an embedder, and hands over what it is asked for."""

    dimensions: int
    take: Callable[[list[str]], None]
    batch: int = 10_000
    cached: bool = False
    fingerprint: str = ""

    def embed(self, texts: Texts) -> Vectors:
        self.take(as_list(texts))
        return np.ones((len(texts), self.dimensions), np.float32)


class TextCounter:
    """Counts texts once, if their vectors are not kept. `known`: how the model counts tokens is known; else they are
    estimated by characters.
    """

    def __init__(self, program: DocumentProgram, tokens: Tokens) -> None:
        embedder = program.embedder
        self._prompt: str = getattr(embedder, "prompt", "")
        made = (program.cache, embedder.fingerprint, embedder.dimensions)
        self._cache = EmbeddingCache(*made) if made[0] is not None else None  # type: ignore[arg-type]  # narrowed
        self._seen: set[bytes] = set()
        self.texts = 0
        self._first = self._rest = self._sampled = self._of_sample = 0
        try:
            self._count: Callable[[str], int] = TokenCounter(tokens).count
            self.known = True
        except UserError:
            self._count, self.known = (lambda text: -(-len(text) // CHARACTERS)), False

    def take(self, texts: list[str]) -> None:
        """Count those that are new."""
        new: dict[str, str] = {}
        for each in texts:
            key = content_hash(each.encode())
            if bytes.fromhex(key) not in self._seen:
                self._seen.add(bytes.fromhex(key))
                new[key] = each
        if self._cache is not None and new:
            for key in self._cache.known(pa.array(list(new), pa.string())):
                new.pop(key, None)
        for each in new.values():
            self._add(self._prompt + each)

    def _add(self, text: str) -> None:
        self.texts += 1
        if self.texts <= _EXACT:
            self._first += self._count(text)
            return
        size = len(text.encode())
        self._rest += size
        if self.texts % _ONE_OF == 0 or not self._of_sample:
            self._of_sample += size
            self._sampled += self._count(text)

    @property
    def tokens(self) -> int:
        """The tokens of all that were counted."""
        rest = self._rest * self._sampled / self._of_sample if self._of_sample else 0
        return self._first + round(rest)
