"""Aliases: the log of promotions decides; Qdrant's own alias follows it, for readers."""

from __future__ import annotations

from collections.abc import Callable

from instep.errors import UserError
from instep.targets.journal import Entry, claimed, decided
from instep.targets.qdrant.collections import Collections
from instep.targets.qdrant.journal import Log


def promote(collections: Collections, alias: str, physical: str | None, epoch: int, owned: Callable[[], str]) -> None:
    """See `IndexTarget.promote`, and `decided`."""
    if alias in collections.names():
        raise UserError(f"{alias!r} is a collection, so it cannot be an alias", where=collections.shown)
    log = _log(collections, alias)
    decided(log, alias, physical, epoch, owned)
    _show(collections, log, alias)


def newest(collections: Collections, alias: str) -> Entry | None:
    return _log(collections, alias).head()


def claim(collections: Collections, alias: str, owned: Callable[[], str]) -> None:
    claimed(_log(collections, alias), owned, physical=collections.pointed(alias))


def served(collections: Collections, alias: str) -> str | None:
    head = newest(collections, alias)
    return None if head is None else head["physical"]


def _show(collections: Collections, log: Log, alias: str) -> None:
    """Bring the alias to what the log says. Of several that do so at once, the last one to look sees it all."""
    shown = None
    while shown is None or (head := log.head()) is None or head["seq"] != shown:
        last = log.head()
        assert last is not None
        collections.point(alias, last["physical"])
        shown = last["seq"]


def _log(collections: Collections, alias: str) -> Log:
    """Not that of an index: these have names of another form."""
    return Log(collections, f"alias {alias}")
