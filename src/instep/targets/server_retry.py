"""Retry policy for a server that is out of reach or overloaded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from instep import retry as again

if TYPE_CHECKING:
    from stamina import Attempt

#: Tries of one request, and seconds between them: the first and the longest.
_ATTEMPTS = 5
_FIRST_WAIT = 0.2
_LONGEST_WAIT = 5.0


def tries(on: type[Exception]) -> Iterable[Attempt]:
    return again.tries(on, attempts=_ATTEMPTS, first_wait=_FIRST_WAIT, longest_wait=_LONGEST_WAIT)
