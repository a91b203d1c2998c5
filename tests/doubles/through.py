"""Stand in front of a port: its calls are seen, or go otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from instep.ledger.transaction import Store


def through(inner: Any, call: Callable[..., Any], before: str = "") -> Any:
    """The same port, each call of which goes through `call`: that is given its name (with this before it), the real one
    and the arguments. Calls of a ledger's stores are named `slices.claim`.
    """
    return _Through(inner, call, before)


def replaced(inner: Any, calls: Mapping[str, Callable[..., Any]]) -> Any:
    """The same port; `calls` is what is done instead of these, given the real one and the arguments."""

    def call(name: str, real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return calls[name](real, *args, **kwargs) if name in calls else real(*args, **kwargs)

    return _Through(inner, call, "")


class _Through:
    def __init__(self, inner: Any, call: Callable[..., Any], before: str) -> None:
        self._inner = inner
        self._call = call
        self._before = before

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._inner, name)
        if isinstance(real, (Store, _Through)):  # Of a ledger, or of one that is behind another of these.
            return _Through(real, self._call, f"{self._before}{name}.")
        if not callable(real) or name == "close":
            return real
        return partial(self._call, self._before + name, real)
