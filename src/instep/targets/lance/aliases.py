"""Aliases: the dataset that is served, by one small file for each promotion, named `<alias>.alias-<number>.json`.

A file is made whole, once, and never written again; the highest number is what is served. So a promotion
that comes late, from an epoch that is over, cannot undo a newer one: it only adds a file that is never read.
Superseded files are removed when a newer one is there.

The number is the epoch of the partition whose alias it is. Where several partitions share an alias their epochs say
nothing about each other: each takes the number after the newest, and of two that take the same one finds it taken. A
file says who of them moved the alias under which epoch, and which ledger's alias it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from instep.errors import Conflict, Fenced, Transient, UserError
from instep.targets.lance.location import Location
from instep.targets.ownership import checked_name

#: A file that vanishes while it is read was superseded; so often in a row it was not.
_TRIES = 100


class Move(NamedTuple):
    """A promotion. `physical` is None where nothing is served any more."""

    epoch: int
    physical: str | None


class _Newest(NamedTuple):
    """The content of the file with the highest number: the served index, and the last move of each partition, by
    scope.
    """

    number: int
    physical: str | None
    moves: Mapping[str, Move]
    owner: str = ""


_NOTHING = _Newest(0, None, {})

#: Given whose an alias says it is, and what it serves: whose it will be. Raises `NotOurs` if it may not be that.
Owned: TypeAlias = "Callable[[str, str | None], str]"


def promote(
    place: Location,
    alias: str,
    physical: str | None,
    epoch: int,
    owned: Owned,
    *,
    scope: str = "",
    superseded: Callable[[str], bool] = lambda _: False,
) -> None:
    """See `TableTarget.promote`. `superseded`: whether what is served has seen a newer epoch of the partition."""
    made = None
    for _ in range(_TRIES):
        newest = _newest(place, alias) or _NOTHING
        owner = owned(newest.owner, newest.physical)
        if made is not None and made < newest.number:
            # Another process was faster.
            place.remove(_file(alias, made))
        before = newest.moves.get(scope, Move(0, None))
        if before.epoch > epoch:
            raise Fenced(f"alias {alias!r}: epoch {epoch} was superseded by epoch {before.epoch}")
        if scope in newest.moves and before.epoch == epoch:
            if before.physical != physical:
                raise Conflict(
                    f"alias {alias!r}: epoch {epoch} serves {before.physical}, so it cannot serve {physical}"
                )
            _tidy(place, alias, newest.number)
            return
        if newest.physical not in (None, physical) and superseded(newest.physical):
            raise Fenced(f"alias {alias!r}: {newest.physical} was written under a newer epoch than {epoch}")
        made = newest.number + 1 if scope else max(newest.number + 1, epoch)
        moves = {**newest.moves, scope: Move(epoch, physical)}
        _write(place, alias, _Newest(made, physical, moves, owner))
    raise Transient(f"alias {alias!r} could not be moved: others move it again and again")


def claim(place: Location, alias: str, owned: Owned) -> None:
    """The same again, for another ledger. Raises `UserError` if nothing was promoted yet."""
    for _ in range(_TRIES):
        newest = _newest(place, alias)
        if newest is None:
            raise UserError(f"there is no alias {alias!r}", where=place.shown)
        owner = owned(newest.owner, newest.physical)
        if newest.owner == owner:
            _tidy(place, alias, newest.number)
            return
        _write(place, alias, newest._replace(number=newest.number + 1, owner=owner))
    raise Transient(f"alias {alias!r} could not be claimed: others move it again and again")


def owner(place: Location, alias: str) -> tuple[str, str | None] | None:
    """The ledger that owns an alias, and the index that it serves; None if there is no alias. Raises `UserError` for
    one that cannot be read: it may be another ledger's.
    """
    newest = _newest(place, alias)
    return (newest.owner, newest.physical) if newest else None


def _write(place: Location, alias: str, newest: _Newest) -> None:
    owner = {"owner": newest.owner} if newest.owner else {}
    said = {"physical": newest.physical, "moves": newest.moves, **owner}
    place.create(_file(alias, newest.number), json.dumps(said).encode())


def served(place: Location, alias: str) -> str | None:
    """See `DocumentTarget.served`."""
    newest = _newest(place, alias)
    return newest.physical if newest else None


def _newest(place: Location, alias: str) -> _Newest | None:
    """None when there is no file; one that says nothing is a `UserError`."""
    found_none = False
    for _ in range(_TRIES):
        number = max(_numbers(place, alias), default=None)
        if number is not None:
            content = place.read(_file(alias, number))
            if content is not None:
                return _understood(place, alias, number, content)
        elif found_none:
            return None
        # A listing is no snapshot everywhere: one promotion during it may hide both files.
        found_none = number is None
    raise Transient(f"alias {alias!r} could not be read: its files vanish again and again")


def _tidy(place: Location, alias: str, newest: int) -> None:
    for number in _numbers(place, alias):
        if number < newest:
            place.remove(_file(alias, number))


def _numbers(place: Location, alias: str) -> list[int]:
    """The numbers of the alias's files."""
    pattern = re.compile(re.escape(f"{checked_name(alias)}.alias-") + r"([0-9]+)\.json")
    found = map(pattern.fullmatch, place.files())
    return [int(each[1]) for each in found if each]


def _understood(place: Location, alias: str, number: int, content: bytes) -> _Newest:
    try:
        value = json.loads(content)
        physical = _checked(value["physical"])
        moves = {scope: Move(int(epoch), _checked(to)) for scope, (epoch, to) in value.get("moves", {}).items()}
        owner = str(value.get("owner", ""))
    except (ValueError, KeyError, TypeError, AttributeError, UserError):
        raise UserError(
            f"alias {alias!r} is damaged: its file {_file(alias, number)} says neither what it serves nor whose it is",
            where=place.shown,
            hint="Put it back from a backup. If the index is this project's and of no other: remove the file, and run: "
            "instep run --full-refresh",
        ) from None
    # Without moves it was made when an alias was one partition's.
    return _Newest(number, physical, moves or {"": Move(number, physical)}, owner)


def _checked(physical: object) -> str | None:
    return None if physical is None else checked_name(str(physical))


def _file(alias: str, number: int) -> str:
    # Padded for listings sorted by name; a longer number is read all the same.
    return f"{checked_name(alias)}.alias-{number:010d}.json"
