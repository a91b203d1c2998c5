"""Aliases: who was promoted when is a log, which decides; Qdrant's own alias follows it, for readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from instep.errors import Conflict, Fenced, UserError
from instep.targets.qdrant.collections import Collections
from instep.targets.qdrant.journal import Log


def promote(collections: Collections, alias: str, physical: str | None, epoch: int) -> None:
    """See `IndexTarget.promote`."""
    if alias in collections.names():
        raise UserError(f"{alias!r} is a collection, so it cannot be an alias", where=collections.shown)
    log = _log(collections, alias)
    while not _decided(log, log.head(), alias, physical, epoch):
        pass
    _show(collections, log, alias)


def served(collections: Collections, alias: str) -> str | None:
    head = _log(collections, alias).head()
    return None if head is None else head["physical"]


def _decided(log: Log, head: Mapping[str, Any] | None, alias: str, physical: str | None, epoch: int) -> bool:
    """Whether the log says it; False when somebody else was quicker."""
    if head is not None and head["epoch"] > epoch:
        raise Fenced(f"alias {alias!r}: epoch {epoch} was superseded by epoch {head['epoch']}")
    if head is not None and head["epoch"] == epoch:
        if head["physical"] != physical:
            raise Conflict(f"alias {alias!r}: epoch {epoch} serves {head['physical']}, so it cannot serve {physical}")
        return True
    if not log.add(head["seq"] + 1 if head else 0, entry="promoted", epoch=epoch, physical=physical):
        return False
    log.settle()
    return True


def _show(collections: Collections, log: Log, alias: str) -> None:
    """Bring the alias to what the log says. Of several that do so at once, the last one to look sees it all."""
    shown = None
    while shown is None or (head := log.head()) is None or head["seq"] != shown:
        newest = log.head()
        assert newest is not None
        collections.point(alias, newest["physical"])
        shown = newest["seq"]


def _log(collections: Collections, alias: str) -> Log:
    """Not that of an index: these have names of another form."""
    return Log(collections, f"alias {alias}")
