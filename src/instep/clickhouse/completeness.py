"""Settings under which ClickHouse answers in part without an error: what it leaves out would be taken for deleted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Protocol

from instep.errors import UserError

_MODES = ("read", "result", "timeout", "group_by", "sort", "distinct", "join", "set", "transfer")
_LEAVES = ("read", "timeout")

#: What every statement is to run under, whatever profile the user has.
WHOLE: Final[Mapping[str, str | int]] = {
    **{f"{each}_overflow_mode": "throw" for each in _MODES},
    **{f"{each}_overflow_mode_leaf": "throw" for each in _LEAVES},
    "skip_unavailable_shards": 0,
    "limit": 0,
    "offset": 0,
}

_IN_PART = re.compile(
    r"(?<![a-z])(\w*?_overflow_mode(?:_leaf)?)\s*=\s*'?(?:break|any)\b|"
    r"(?<![a-z])(skip_unavailable_shards|partial_result_on_first_cancel)\s*=\s*'?(?:1|true)\b",
    re.IGNORECASE,
)


class Setting(Protocol):
    """One of `system.settings`, as the client library has it: of this user."""

    @property
    def value(self) -> str: ...

    @property
    def readonly(self) -> bool | int: ...


def demanded(known: Mapping[str, Setting], where: str) -> dict[str, str | int]:
    """What of `WHOLE` is to be sent to a server with these settings; one that is not among them too, since the profile
    may have cut off the answer that they came in. Raises `UserError` for one that is otherwise and that the user may
    not change.
    """
    found: dict[str, str | int] = {}
    for name, value in WHOLE.items():
        setting = known.get(name)
        if setting is None or not setting.readonly:
            found[name] = value
        elif setting.value not in _spelled(value):
            raise UserError(
                f"ClickHouse would answer in part: the user's profile has {name} = {setting.value}, and keeps it so",
                where=where,
                hint=f"Give Instep a user whose profile has {name} = {value}, or lets it be changed.",
            )
    return found


def _spelled(value: str | int) -> set[str]:
    return {"0", "0.0", "false"} if value == 0 else {str(value)}


def in_part(text: str) -> str | None:
    """The setting in this SQL, or definition of a table, or address, under which an answer may lack rows."""
    found = _IN_PART.search(text)
    return next(filter(None, found.groups())) if found else None
