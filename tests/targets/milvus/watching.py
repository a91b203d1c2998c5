"""Calls of pymilvus, seen before they are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from instep.targets.milvus.location import Location

#: Before a call of pymilvus: its name, and its arguments by name.
Before = Callable[[str, dict[str, Any]], None]


def watch(monkeypatch: pytest.MonkeyPatch, before: Before) -> None:
    """Every call goes by `before`, save those that it makes itself."""
    call = Location._call
    within: list[str] = []

    def watched(place: Location, method: str, *args: Any, **kwargs: Any) -> Any:
        if not within:
            within.append(method)
            try:
                before(method, {"collection": args[0] if args else None, "data": args[1:], **kwargs})
            finally:
                within.clear()
        return call(place, method, *args, **kwargs)

    monkeypatch.setattr(Location, "_call", watched)
