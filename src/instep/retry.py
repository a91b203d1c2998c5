"""The same call again, some times: what servers and endpoints are asked with. It prints nothing by itself."""

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
    """Stamina logs each retry in its own words, to the terminal if nobody has configured logging. What is away for
    longer than these tries is said in a sentence by who waits for it.
    """
    import stamina

    stamina.instrumentation.set_on_retry_hooks(())
