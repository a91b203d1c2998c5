"""What a bucket has under a key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Found:
    data: bytes
    revision: int
