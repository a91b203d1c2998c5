"""Access to the server: token, hosts, origins. Pure.

Reads are open where only this machine can ask; what changes state needs the token everywhere. A page of another site
that the user's browser has open can ask too, so the names that the server answers to are checked (DNS rebinding), and
a request that a page made must be one of ours (`Origin`).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

#: Paths of data. All others are files of the page: static, and the same for all users.
_GUARDED: Final = ("/api", "/ws", "/metrics")
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})

#: A browser cannot give a WebSocket a header: it offers this and the token behind it as a subprotocol.
TOKEN_PROTOCOL: Final = "instep.token."  # noqa: S105 - what stands before a token


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not answered, as an HTTP status."""

    status: int
    why: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """The parts of a request that decide. `offered` are the subprotocols of a WebSocket."""

    method: str
    path: str
    host: str | None
    origin: str | None
    authorization: str | None
    offered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Access:
    """`loopback`: only this machine reaches the server."""

    token: str = field(repr=False)
    loopback: bool

    def refusal(self, asked: Asked) -> Refusal | None:
        """Why it is refused, or None."""
        name = host_name(asked.host)
        if not name:
            return Refusal(400, "the request names no host that could be understood")
        if self.loopback and name not in _LOOPBACK:
            return Refusal(421, "this server answers to 127.0.0.1, localhost and [::1] only")
        if asked.origin is not None and urlsplit_host(asked.origin) != (asked.host or "").lower():
            return Refusal(403, "pages of other sites may not ask this server")
        if self._needs_token(asked) and not self._has_token(asked):
            return Refusal(401, "this needs the token of the server", "Send it as `Authorization: Bearer TOKEN`.")
        return None

    def _needs_token(self, asked: Asked) -> bool:
        if asked.method not in _READS:
            return True
        return not self.loopback and is_guarded(asked.path)

    def _has_token(self, asked: Asked) -> bool:
        scheme, _, given = (asked.authorization or "").partition(" ")
        candidates = [given.strip()] if scheme.lower() == "bearer" else []
        candidates += [each.removeprefix(TOKEN_PROTOCOL) for each in asked.offered if each.startswith(TOKEN_PROTOCOL)]
        return any(secrets.compare_digest(each.encode(), self.token.encode()) for each in candidates)


def is_guarded(path: str) -> bool:
    """Whether it is data, and not one of the page's files."""
    return any(path == each or path.startswith(f"{each}/") for each in _GUARDED)


def host_name(host: str | None) -> str | None:
    """`localhost` of `LocalHost:8321`; None for what is no host."""
    try:
        return urlsplit(f"//{host or ''}").hostname
    except ValueError:
        return None


def urlsplit_host(origin: str) -> str:
    """Host and port of an `Origin`; empty for none, such as `null`."""
    return origin.partition("://")[2].lower()
