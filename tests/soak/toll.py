"""What was done to the servers, and what went wrong that must not."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Toll:
    """`gave_up` counts runs that said to be started again later, `problems` says what must never be."""

    kills: int = 0
    pauses: int = 0
    outages: int = 0
    starts: int = 0
    gave_up: int = 0
    problems: list[str] = field(default_factory=list)
