"""The texts of the chunks that a chunker makes."""

from __future__ import annotations

from instep.pipeline.documents.chunk import Chunker
from instep.pipeline.documents.parse import ParseFailure


def texts_of(chunker: Chunker, *texts: tuple[str, str]) -> list[list[str]]:
    """Of each (kind, text)."""
    cut = chunker.cut(texts)
    assert not any(isinstance(each, ParseFailure) for each in cut)
    return [[] if isinstance(each, ParseFailure) else [chunk.text for chunk in each] for each in cut]
