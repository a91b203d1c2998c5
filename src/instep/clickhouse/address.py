"""The address of ClickHouse: a folder (in process), or `http://user:password@host:8123/database`."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit

from instep.errors import UserError

#: Of an index's tables in a folder, and where an address of a server names none.
DATABASE = "instep"
_PORTS = {"http": 8123, "https": 8443}


def is_server(uri: str) -> bool:
    return "://" in uri and not uri.startswith("file://")


@dataclass(frozen=True)
class ServerAddress:
    host: str
    port: int
    secure: bool
    database: str
    user: str
    password: str = field(repr=False)

    @classmethod
    def parse(cls, uri: str, *, database: str = DATABASE) -> ServerAddress:
        """`database` is where the address names none."""
        parts = urlsplit(uri)
        try:
            port = parts.port
        except ValueError:
            port = None if not parts.netloc else -1
        if parts.scheme not in _PORTS or not parts.hostname or port == -1 or parts.query:
            raise UserError(
                "the address of a ClickHouse server is not understood",
                where=f"{parts.scheme}://{parts.hostname or ''}",
                hint="Write http://user:password@host:8123/database (https for an encrypted connection).",
            )
        return cls(
            parts.hostname,
            port or _PORTS[parts.scheme],
            parts.scheme == "https",
            unquote(parts.path.strip("/")) or database,
            unquote(parts.username or "default"),
            unquote(parts.password or ""),
        )

    @property
    def shown(self) -> str:
        """Without user and password."""
        return f"http{'s' if self.secure else ''}://{self.host}:{self.port}/{self.database}"

    def without_secrets(self, text: str) -> str:
        for secret in {self.password, quote(self.password, safe="")}:
            if len(secret) > 3:
                text = text.replace(secret, "***")
        return text
