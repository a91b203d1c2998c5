"""Files of a table that were read already: a number for each, so that a hundred thousand of them take 800 KB."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

_BYTES: Final = 8


class TableFile(NamedTuple):
    """A file in one version of it: what differs when it may have other rows."""

    path: str
    size: int
    version: str

    @property
    def number(self) -> int:
        """64 bits of a digest."""
        text = f"{self.path}\0{self.size}\0{self.version}".encode(errors="surrogateescape")
        return int.from_bytes(hashlib.sha256(text).digest()[:_BYTES], "big")


@dataclass(frozen=True, slots=True)
class Files:
    """The files that were read, in the versions that they had then."""

    numbers: frozenset[int] = frozenset()

    @classmethod
    def of(cls, files: Iterable[TableFile]) -> Files:
        return cls(frozenset(each.number for each in files))

    def new(self, files: Sequence[TableFile]) -> list[TableFile]:
        """Those that are new, or changed."""
        return [each for each in files if each.number not in self.numbers]

    def encode(self) -> bytes:
        found = array("Q", sorted(self.numbers))
        return found.tobytes()

    @classmethod
    def decode(cls, data: bytes) -> Files:
        found = array("Q")
        found.frombytes(data)
        return cls(frozenset(found))
