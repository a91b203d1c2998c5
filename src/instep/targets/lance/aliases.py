"""Which dataset is served: one small file for each promotion, named `<alias>.alias-<epoch>.json`.

A file is made whole, once, and never written again; the highest epoch is what is served. So a promotion
that comes late, from an epoch that is over, cannot undo a newer one: it only adds a file that nobody reads.
Superseded files are removed when a newer one is there.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from instep.errors import Conflict, Fenced, Transient, UserError
from instep.targets.lance.place import Place, checked_name

#: A file that vanishes while it is read was superseded; so often in a row it was not.
_TRIES = 100


def promote(place: Place, alias: str, physical: str | None, epoch: int) -> None:
    """See `DocumentTarget.promote`."""
    _refuse_older(place, alias, epoch)
    name = _file(alias, epoch)
    place.create(name, json.dumps({"physical": physical}).encode())
    try:
        _refuse_older(place, alias, epoch)
    except Fenced:
        # A newer one came in beside us.
        place.remove(name)
        raise
    there = _content(place, alias, epoch)
    if there is None or there.physical != physical:
        serves = there.physical if there else None
        raise Conflict(f"alias {alias!r}: epoch {epoch} serves {serves}, so it cannot serve {physical}")
    for older in _epochs(place, alias):
        if older < epoch:
            place.remove(_file(alias, older))


def served(place: Place, alias: str) -> str | None:
    """See `DocumentTarget.served`."""
    found_none = False
    for _ in range(_TRIES):
        newest = max(_epochs(place, alias), default=None)
        if newest is not None:
            content = _content(place, alias, newest)
            if content is not None:
                return content.physical
        elif found_none:
            return None
        # A listing is no snapshot everywhere: one promotion during it may hide both files.
        found_none = newest is None
    raise Transient(f"alias {alias!r} could not be read: its files vanish again and again")


def _refuse_older(place: Place, alias: str, epoch: int) -> None:
    newest = max(_epochs(place, alias), default=epoch)
    if newest > epoch:
        raise Fenced(f"alias {alias!r}: epoch {epoch} was superseded by epoch {newest}")


def _epochs(place: Place, alias: str) -> list[int]:
    """Those that a file is there for."""
    pattern = re.compile(re.escape(f"{checked_name(alias)}.alias-") + r"([0-9]+)\.json")
    found = map(pattern.fullmatch, place.files())
    return [int(each[1]) for each in found if each]


class _Content(NamedTuple):
    """What a file says. `physical` is None where nothing is served any more."""

    physical: str | None


def _content(place: Place, alias: str, epoch: int) -> _Content | None:
    """None when there is no such file (any more)."""
    content = place.read(_file(alias, epoch))
    if content is None:
        return None
    try:
        physical = json.loads(content)["physical"]
        return _Content(None if physical is None else checked_name(str(physical)))
    except (ValueError, KeyError, TypeError, UserError):
        raise UserError(
            f"alias {alias!r} is damaged", where=place.shown, hint="A run with --full-refresh mends it."
        ) from None


def _file(alias: str, epoch: int) -> str:
    # Padded for those who sort by name; a longer number is read all the same.
    return f"{checked_name(alias)}.alias-{epoch:010d}.json"
