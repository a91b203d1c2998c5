"""Aliases: who was promoted when is a log, which decides; Qdrant's own alias follows it, for readers."""

from __future__ import annotations

from instep.errors import UserError
from instep.targets.journal import decided
from instep.targets.qdrant.collections import Collections
from instep.targets.qdrant.journal import Log


def promote(collections: Collections, alias: str, physical: str | None, epoch: int) -> None:
    """See `IndexTarget.promote`."""
    if alias in collections.names():
        raise UserError(f"{alias!r} is a collection, so it cannot be an alias", where=collections.shown)
    log = _log(collections, alias)
    decided(log, alias, physical, epoch)
    _show(collections, log, alias)


def served(collections: Collections, alias: str) -> str | None:
    head = _log(collections, alias).head()
    return None if head is None else head["physical"]


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
