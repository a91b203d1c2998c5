"""An entry of a bucket: value and revision of a key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Found:
    data: bytes
    revision: int
