"""Words of texts: where they begin and end, for every target that is searched by words.

A word ends at any punctuation of ASCII but the apostrophe. So each part of a name is found, wherever it stands:
`LoadLibrary` in `_ctypes.LoadLibrary`, `HikariDataSource` in `com.zaxxer.hikari.HikariDataSource`, and those of URLs
and paths. Left to themselves, the tokenizers of OpenSearch and PostgreSQL take many of these as one word.
"""

from __future__ import annotations

import string
from typing import Final

#: What parts words. An apostrophe is left to the target: `don't` is one word.
SEPARATORS: Final = string.punctuation.replace("'", "")

_SPACES: Final = str.maketrans(SEPARATORS, " " * len(SEPARATORS))


def parted(text: str) -> str:
    """The text with spaces where its words are parted."""
    return text.translate(_SPACES)
