"""Names of indexes and aliases: they become parts of paths and of SQL."""

from __future__ import annotations

import re

from instep.errors import UserError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@=-]{0,199}\Z")


def checked_name(name: str) -> str:
    """The name itself if it can name an index or an alias."""
    if not _NAME.match(name) or ".." in name:
        raise UserError(
            f"{name!r} cannot name an index",
            hint="Use letters, digits, '_', '-', '.', '@' and '=', at most 200 characters, starting with a letter "
            "or a digit.",
        )
    return name
