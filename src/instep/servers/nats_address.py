"""Address of a NATS server: the parts of its URL, and a label without secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote

#: Before the names of streams, buckets and subjects, so that several projects can share a server.
DEFAULT_PREFIX: Final = "instep"

#: Files with certificates, and the only options.
_OPTIONS: Final = ("tls_ca", "tls_cert", "tls_key")

_HOST: Final = r"(?: [A-Za-z0-9._-]+ | \[ [0-9A-Fa-f:.]+ \] ) (?: : [0-9]{1,5} )?"
_URL: Final = re.compile(
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
    match = _URL.fullmatch(url)
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
