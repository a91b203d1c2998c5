"""Names of indexes as OpenSearch has them: in small letters. Aliases keep their own."""

from __future__ import annotations

from instep.targets.names import checked_name

#: No index of Instep's has this character in its name.
_MARK = "+"

#: Holds what Instep knows of its indexes: no name of an index is coded like this.
STATE = "instep+journal"


def coded(name: str) -> str:
    """`Document__1` is `document__1+1`: behind the plus which letters are capitals, as a hexadecimal number."""
    capitals = sum(1 << place for place, letter in enumerate(checked_name(name)) if letter.isupper())
    return f"{name.lower()}{_MARK}{capitals:x}" if capitals else name


def decoded(index: str) -> str | None:
    """The name of an index; None: it is not one that Instep has named."""
    small, mark, said = index.partition(_MARK)
    if not mark:
        return small
    try:
        capitals = int(said, 16)
    except ValueError:
        return None
    return "".join(letter.upper() if capitals >> place & 1 else letter for place, letter in enumerate(small))
