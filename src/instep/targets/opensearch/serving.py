"""Aliases: the log of promotions decides; OpenSearch's own alias follows it, for readers."""

from __future__ import annotations

from collections.abc import Callable

from instep.errors import Transient, UserError
from instep.targets.journal import Entry, claimed, decided
from instep.targets.opensearch.indexes import Indexes
from instep.targets.opensearch.log import Log
from instep.targets.opensearch.names import coded, decoded

#: Looks at an alias that others keep moving.
_LOOKS = 100


def promote(indexes: Indexes, alias: str, physical: str | None, epoch: int, owned: Callable[[], str]) -> None:
    """See `IndexTarget.promote`, and `decided`."""
    if alias in indexes.names() and coded(alias) == alias:
        raise UserError(f"{alias!r} is an index, so it cannot be an alias", where=indexes.shown)
    log = _log(indexes, alias)
    decided(log, alias, physical, epoch, owned)
    _show(indexes, log, alias)


def newest(indexes: Indexes, alias: str) -> Entry | None:
    return _log(indexes, alias).head()


def claim(indexes: Indexes, alias: str, owned: Callable[[], str]) -> None:
    shown = [name for each in indexes.behind(alias) if (name := decoded(each)) is not None]
    claimed(_log(indexes, alias), owned, physical=shown[0] if len(shown) == 1 else None)


def served(indexes: Indexes, alias: str) -> str | None:
    head = newest(indexes, alias)
    return None if head is None else head["physical"]


def _show(indexes: Indexes, log: Log, alias: str) -> None:
    """Bring the alias to what the log says, and see that it is there. Of several that do so at once, the last one to
    look sees it all.
    """
    for _ in range(_LOOKS):
        last = log.head()
        assert last is not None
        physical = last["physical"]
        indexes.point(alias, physical)
        verified = indexes.behind(alias) == ([] if physical is None else [coded(physical)])
        head = log.head()
        if verified and head is not None and head["seq"] == last["seq"]:
            return
    raise Transient(f"{indexes.shown}: alias {alias!r} does not stay where it is put")


def _log(indexes: Indexes, alias: str) -> Log:
    """Not that of an index: these have names of another form."""
    return Log(indexes, f"alias {alias}")
