"""Aliases: who was promoted when is a log, which decides; OpenSearch's own alias follows it, for readers."""

from __future__ import annotations

from instep.errors import Transient, UserError
from instep.targets.journal import decided
from instep.targets.opensearch.indexes import Indexes
from instep.targets.opensearch.log import Log
from instep.targets.opensearch.names import coded

#: Looks at an alias that others keep moving.
_LOOKS = 100


def promote(indexes: Indexes, alias: str, physical: str | None, epoch: int) -> None:
    """See `IndexTarget.promote`."""
    if alias in indexes.names() and coded(alias) == alias:
        raise UserError(f"{alias!r} is an index, so it cannot be an alias", where=indexes.shown)
    log = _log(indexes, alias)
    decided(log, alias, physical, epoch)
    _show(indexes, log, alias)


def served(indexes: Indexes, alias: str) -> str | None:
    head = _log(indexes, alias).head()
    return None if head is None else head["physical"]


def _show(indexes: Indexes, log: Log, alias: str) -> None:
    """Bring the alias to what the log says, and see that it is there. Of several that do so at once, the last one to
    look sees it all.
    """
    for _ in range(_LOOKS):
        newest = log.head()
        assert newest is not None
        physical = newest["physical"]
        indexes.point(alias, physical)
        verified = indexes.behind(alias) == ([] if physical is None else [coded(physical)])
        head = log.head()
        if verified and head is not None and head["seq"] == newest["seq"]:
            return
    raise Transient(f"{indexes.shown}: alias {alias!r} does not stay where it is put")


def _log(indexes: Indexes, alias: str) -> Log:
    """Not that of an index: these have names of another form."""
    return Log(indexes, f"alias {alias}")
