"""Address of a database server: the parts of its URL, and a label without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final
from urllib.parse import parse_qsl, unquote

#: What may stand before `://`, and which kind of server it means. The driver is Instep's choice.
SERVER_SCHEMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "postgresql": "postgresql",
        "postgres": "postgresql",
        "postgresql+psycopg": "postgresql",
        "mysql": "mysql",
        "mariadb": "mysql",
        "mysql+pymysql": "mysql",
        "mariadb+pymysql": "mysql",
    }
)

#: User and password end at the first @, host and port at the first slash: a password that holds such a
#: character must write it as a %-code, or a part of it would be taken for the host, and shown.
_URL: Final = re.compile(
    r"""
    (?P<scheme> [a-z0-9+]+ ) ://
    (?: (?P<user> [^:/?#@\s]+ ) (?: : (?P<password> [^:/?#@\s]* ) )? @ )?
    (?P<host> [A-Za-z0-9._-]* | \[ [0-9A-Fa-f:.]+ \] ) (?: : (?P<port> [0-9]{1,5} ) )?
    / (?P<database> [^:/?#@\s]+ )
    (?: \? (?P<options> [^#\s]* ) )?
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """`kind` is `postgresql` or `mysql` (which MariaDB is, too)."""

    kind: str
    scheme: str
    host: str
    port: int | None
    database: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def label(self) -> str:
        """Fit to be shown: without user, password and options."""
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}/{self.database}"


def server_address(url: str) -> ServerAddress:
    """The parts of a URL with one of `SERVER_SCHEMES`. Raises `ValueError`, which never repeats any of it."""
    match = _URL.fullmatch(url)
    if match is None:
        raise ValueError(
            "must look like postgresql://user:password@host/database; in the user and the password, "
            "write the characters : / ? # @ % and spaces as %-codes (@ is %40)"
        )
    user, password = match["user"], match["password"]
    return ServerAddress(
        kind=SERVER_SCHEMES[match["scheme"]],
        scheme=match["scheme"].partition("+")[0],
        host=match["host"].strip("[]"),
        port=None if match["port"] is None else int(match["port"]),
        database=unquote(match["database"]),
        user=None if user is None else unquote(user),
        password=None if password is None else unquote(password),
        options=dict(parse_qsl(match["options"] or "", keep_blank_values=True)),
    )
