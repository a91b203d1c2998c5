"""A place that rows are read from: a folder of ClickHouse in this process, or a server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from instep.clickhouse import embedded, server
from instep.clickhouse.session import ServerAddress, Session, is_server
from instep.errors import UserError

#: Where tables are whose name says no database, unless the address of a server says it.
_DATABASE = "default"


@dataclass(frozen=True)
class Location:
    """`uri` is a folder, or `http://user:password@host:8123/database`."""

    uri: str = field(repr=False)

    @classmethod
    def of(cls, uri: str) -> Location:
        """Tasks may run in another working directory: relative paths become absolute here."""
        if is_server(uri):
            return cls(uri)
        path = unquote(urlsplit(uri).path) if uri.startswith("file://") else uri
        return cls(str(Path(path).expanduser().resolve()))

    @property
    def remote(self) -> bool:
        """Whether it is a server."""
        return is_server(self.uri)

    @property
    def shown(self) -> str:
        """The location without secrets."""
        return self._address.shown if self.remote else self.uri

    @property
    def database(self) -> str:
        return self._address.database if self.remote else _DATABASE

    @property
    def _address(self) -> ServerAddress:
        return ServerAddress.parse(self.uri, database=_DATABASE)

    @contextlib.contextmanager
    def session(self, settings: Mapping[str, str | int] | None = None) -> Iterator[Session]:
        """Open a session; in a folder, as soon as no other process works there. Nothing is made where there is nothing.
        All of it runs under the `settings`; those of its `under` come on top in a folder, and stand in their place on a
        server.
        """
        if self.remote:
            yield server.session(self._address, database=self.database).under(settings or {})
            return
        folder = Path(self.uri)
        if not folder.is_dir():
            raise UserError("there is no such folder", where=self.uri, hint="chdb keeps its tables in one.")
        with embedded.session(folder, alone=False, settings=settings) as local:
            yield local
