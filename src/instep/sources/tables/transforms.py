"""The user's function on a table's rows, and the columns that have to be there before and after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeAlias

from instep.errors import UserError
from instep.own_code import send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Transform: TypeAlias = "Callable[[DataFrame], DataFrame]"

_LONGEST = 500
_SHOWN = 30


def demand(names: Iterable[str], there: Sequence[str], where: str, *, after: str = "") -> None:
    """Raises `UserError` for the first that is not there. `after` is what it was lost by."""
    for name in names:
        if name in there:
            continue
        close = get_close_matches(name.lower(), [each.lower() for each in there], 1)
        meant = next((each for each in there if close and each.lower() == close[0]), None)
        hint = f"Did you mean {meant!r}? " if meant else ""
        shown = ", ".join(map(repr, there[:_SHOWN])) + (", …" if len(there) > _SHOWN else "")
        lost = f" after {after}" if after else ""
        raise UserError(f"there is no column {name!r}{lost}", where=where, hint=f"{hint}Its columns: {shown}.")


def transformed(frame: DataFrame, transform: Transform, name: str, where: str) -> DataFrame:
    from pyspark.sql import DataFrame

    send(frame.sparkSession, transform)
    try:
        found = transform(frame)
    except Exception as error:
        said = str(error).strip().splitlines()
        reason = f"{type(error).__name__}: {said[0][:_LONGEST]}" if said else type(error).__name__
        raise UserError(f"the transform raised {reason}", where=f"{where}: {name}") from error
    if not isinstance(found, DataFrame):
        raise UserError(f"the transform returned {type(found).__name__}, not a DataFrame", where=f"{where}: {name}")
    return found
