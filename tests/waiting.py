"""Waiting for what happens in another thread, process or server."""

import time
from collections.abc import Callable

SECONDS = 120.0


def until(happened: Callable[[], bool], *shown: object, seconds: float = SECONDS) -> None:
    """`shown` is told if it never happens."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, ("it never happened", *shown)
        time.sleep(0.005)
