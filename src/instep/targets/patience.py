"""How often a server is asked again that is out of reach or overloaded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stamina import Attempt

#: Tries of one request, and seconds between them: the first and the longest.
_ATTEMPTS = 5
_FIRST_WAIT = 0.2
_LONGEST_WAIT = 5.0


def tries(on: type[Exception]) -> Iterable[Attempt]:
    """Each in a `with`; what is raised of another kind, or by the last one, is raised on."""
    import stamina

    return stamina.retry_context(
        on=on,
        attempts=_ATTEMPTS,
        timeout=None,
        wait_initial=_FIRST_WAIT,
        wait_max=_LONGEST_WAIT,
        wait_jitter=_FIRST_WAIT,
    )
