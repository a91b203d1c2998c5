"""Addresses of database servers and of NATS: the parts of a URL, and a label without secrets."""

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


#: Before the names of streams, buckets and subjects, so that several projects can share a server.
DEFAULT_PREFIX: Final = "instep"

#: Files with certificates, and the only options.
_OPTIONS: Final = ("tls_ca", "tls_cert", "tls_key")

_HOST: Final = r"(?: [A-Za-z0-9._-]+ | \[ [0-9A-Fa-f:.]+ \] ) (?: : [0-9]{1,5} )?"
_NATS_URL: Final = re.compile(
    rf"""
    (?P<scheme> nats | tls ) ://
    (?: (?P<user> [^:/?#@\s]+ ) (?: : (?P<password> [^:/?#@\s]* ) )? @ )?
    (?P<hosts> {_HOST} (?: , {_HOST} )* )
    (?: / (?P<prefix> [A-Za-z0-9_-]{{1,64}} )? )?
    (?: \? (?P<options> [^#\s]* ) )?
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class NatsAddress:
    """`servers` are URLs without anything secret."""

    servers: tuple[str, ...]
    prefix: str
    tls: bool
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None

    @property
    def label(self) -> str:
        """Fit to be shown."""
        return f"{','.join(self.servers)}/{self.prefix}"


def nats_address(url: str) -> NatsAddress:
    """The parts of `nats://user:password@host:4222,other:4222/prefix`. Raises `ValueError`, which never repeats any of
    it. A name without a password is a token.
    """
    match = _NATS_URL.fullmatch(url)
    if match is None:
        raise ValueError(
            "must look like nats://user:password@host:4222/prefix or tls://token@host; in the user, the password and "
            "the token, write the characters : / ? # @ % and spaces as %-codes (@ is %40)"
        )
    options = dict(parse_qsl(match["options"] or "", keep_blank_values=True))
    if unknown := sorted(options.keys() - set(_OPTIONS)):
        raise ValueError(f"has an option {unknown[0][:40]!r}; these are known: {', '.join(_OPTIONS)}")
    tls = match["scheme"] == "tls"
    if options and not tls:
        raise ValueError("has options for TLS, but does not begin with tls://")
    if "tls_key" in options and "tls_cert" not in options:
        raise ValueError("has a tls_key without a tls_cert")
    user = None if match["user"] is None else unquote(match["user"])
    password = None if match["password"] is None else unquote(match["password"])
    return NatsAddress(
        servers=tuple(f"{match['scheme']}://{each}" for each in match["hosts"].split(",")),
        prefix=match["prefix"] or DEFAULT_PREFIX,
        tls=tls,
        user=user if password is not None else None,
        password=password,
        token=user if password is None else None,
        **options,
    )
