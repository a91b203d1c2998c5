"""Outcomes of a commit as text, in pieces of a size that a store takes, and back."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from instep.domain.waves import Mark

#: Characters of a piece and of one request, and pieces in one request. Whole groups of four characters: each piece is
#: base64 by itself.
_PIECE = 4 * 1024 * 1024
_AT_ONCE = 1_000


def kept(
    marks: Sequence[Mark],
    about: Mapping[str, Any],
    identified: Callable[[str, int, int], str],
    store: Callable[[Mapping[str, Mapping[str, Any]]], None],
) -> list[list[Any]]:
    """Give `store` all pieces by their ids, some at a time: `about` and the text as `outcome`. `identified` makes an id
    of slice, fence and number. Returns slice, fence and number of pieces of each mark.
    """
    said: list[list[Any]] = []
    waiting: dict[str, Mapping[str, Any]] = {}
    length = 0
    for mark in marks:
        text = base64.b64encode(mark.outcome).decode()
        pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
        for number, piece in enumerate(pieces):
            if length + len(piece) > _PIECE or len(waiting) == _AT_ONCE:
                store(waiting)
                waiting, length = {}, 0
            waiting[identified(mark.slice_id, mark.fence, number)] = {**about, "outcome": piece}
            length += len(piece)
        said.append([mark.slice_id, mark.fence, len(pieces)])
    if waiting:
        store(waiting)
    return said


def joined(pieces: Iterable[str]) -> bytes:
    return b"".join(map(base64.b64decode, pieces))
