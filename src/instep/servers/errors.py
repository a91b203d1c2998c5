"""Classify errors of database servers by their code and message, for the caller."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final


class Trouble(Enum):
    LOST = auto()  # the connection, and with it perhaps the answer
    ABSENT = auto()  # there was no connection to begin with
    COLLISION = auto()
    BUSY = auto()
    LOGIN = auto()
    NO_DATABASE = auto()
    RIGHTS = auto()
    FULL = auto()
    OPTION = auto()
    TOO_LARGE = auto()
    TORN = auto()


_POSTGRES: Final = {
    "40001": Trouble.COLLISION,  # serialization failure
    "40P01": Trouble.COLLISION,  # deadlock
    "55P03": Trouble.BUSY,  # a lock was not free in time
    "57014": Trouble.BUSY,  # the statement took too long
    "25006": Trouble.BUSY,  # read only: a standby, in the middle of a failover perhaps
    "53200": Trouble.BUSY,  # out of memory
    "53300": Trouble.BUSY,  # too many connections
    "53100": Trouble.FULL,
    "58030": Trouble.FULL,  # an input or output error, as a full disk may be told
    "42501": Trouble.RIGHTS,
    "28000": Trouble.LOGIN,
    "28P01": Trouble.LOGIN,
    "3D000": Trouble.NO_DATABASE,
}
#: Connections that broke, were ended by the server as it went down, or had been idle for too long.
_POSTGRES_LOST: Final = ("08", "57P", "25P03", "25P04", "57P05")

# An error on the way to a connection brings no code.
_NO_CODE: Final = (
    (re.compile(r"password authentication failed|no password supplied|no pg_hba\.conf entry"), Trouble.LOGIN),
    (re.compile(r"role \".*\" does not exist|authentication failed"), Trouble.LOGIN),
    (re.compile(r"database \".*\" does not exist"), Trouble.NO_DATABASE),
    (re.compile(r"permission denied for database"), Trouble.RIGHTS),
    (re.compile(r"invalid connection option|invalid .* value|certificate|SSL was required"), Trouble.OPTION),
    (
        re.compile(r"connection failed|failed to resolve|connection timeout|could not (connect|translate)"),
        Trouble.ABSENT,
    ),
)

_PREAMBLE: Final = re.compile(
    r"connection failed: |connection to server .*? failed: |FATAL: +|consuming input failed: "
)


def postgres_trouble(sqlstate: str | None, said: str, *, operational: bool) -> Trouble | None:
    """`operational`: the driver calls it an OperationalError. None for a fault of the statement or its values."""
    if sqlstate is None:
        for pattern, trouble in _NO_CODE:
            if pattern.search(said):
                return trouble
        return Trouble.LOST if operational else None
    if sqlstate.startswith(_POSTGRES_LOST):
        return Trouble.LOST
    return _POSTGRES.get(sqlstate)


def postgres_reason(said: str) -> str:
    """The reason of an error in one line, without the address."""
    return _PREAMBLE.sub("", said.strip().partition("\n")[0])
