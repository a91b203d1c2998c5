"""Aliases: a record of who was promoted when, and aliases of Milvus for readers. The record decides."""

from __future__ import annotations

from instep.errors import Conflict, Fenced, UserError
from instep.targets.milvus import names
from instep.targets.milvus.journal import Record, read, record, remove, write
from instep.targets.milvus.location import Location, Missing, Refused


def promote(place: Location, alias: str, physical: str | None, epoch: int) -> None:
    """See `DocumentTarget.promote`."""
    if names.collection(alias) in place.call("list_collections"):
        raise UserError(f"{alias!r} is a collection, so it cannot be an alias", where=place.shown, hint="Rename one.")
    last = newest(place, alias)
    if last and last["epoch"] > epoch:
        raise Fenced(f"alias {alias!r}: epoch {epoch} was superseded by epoch {last['epoch']}")
    if last is None or last["epoch"] < epoch:
        write(place, [record("alias", alias, attempt=physical or "", epoch=epoch)])
    decided = _show_newest(place, alias)
    if decided["epoch"] > epoch:
        raise Fenced(f"alias {alias!r}: epoch {epoch} was superseded by epoch {decided['epoch']}")
    if decided["attempt"] != (physical or ""):
        serves = decided["attempt"] or "nothing"
        raise Conflict(f"alias {alias!r}: epoch {epoch} serves {serves}, so it cannot serve {physical or 'nothing'}")
    remove(place, f'entry == "alias" and name == {names.text(alias)} and epoch < {epoch:d}')


def served(place: Location, alias: str) -> str | None:
    last = newest(place, alias)
    return (last["attempt"] or None) if last else None


def newest(place: Location, alias: str) -> Record | None:
    """Of two of one epoch that which came first."""
    where = f'entry == "alias" and name == {names.text(alias)}'
    found = read(place, where, ["epoch", "attempt", "at"])
    return min(found, key=lambda each: (-each["epoch"], each["at"], each["attempt"]), default=None)


def _show_newest(place: Location, alias: str) -> Record:
    """Bring the alias to what was promoted last. Of several that do so at once, the last one to look sees it all."""
    shown = None
    while shown != (last := newest(place, alias)):
        assert last is not None
        _show(place, names.collection(alias), last["attempt"])
        shown = last
    assert shown is not None
    return shown


def _show(place: Location, alias: str, physical: str) -> None:
    if not physical:
        try:
            place.call("drop_alias", alias)
        except (Missing, Refused):
            if shown_by(place, alias) is not None:
                raise
        return
    collection = names.collection(physical)
    try:
        place.call("alter_alias", collection, alias)
    except (Missing, Refused):
        try:
            place.call("create_alias", collection, alias)
        except (Missing, Refused):
            # Another promoter was quicker.
            place.call("alter_alias", collection, alias)


def shown_by(place: Location, alias: str) -> str | None:
    """The collection that readers find under an alias, as Milvus calls both."""
    try:
        found: str = place.call("describe_alias", alias)["collection_name"]
    except (Missing, Refused):
        return None
    return found
