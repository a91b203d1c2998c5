"""Retries of calls to servers and endpoints. Prints nothing by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stamina import Attempt


def tries(
    on: type[Exception] | Callable[[Exception], bool | float], *, attempts: int, first_wait: float, longest_wait: float
) -> Iterable[Attempt]:
    """Each in a `with`; what is raised of another kind, or by the last one, is raised on. Waits are in seconds."""
    import stamina

    _silence()
    return stamina.retry_context(
        on=on,
        attempts=attempts,
        timeout=None,
        wait_initial=first_wait,
        wait_max=longest_wait,
        wait_jitter=first_wait,
    )


@cache
def _silence() -> None:
    """Stamina logs each retry, to the terminal by default. The caller reports a longer outage itself."""
    import stamina

    stamina.instrumentation.set_on_retry_hooks(())
