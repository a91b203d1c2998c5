"""Location of a schema. The driver is imported on connecting: a run with nothing to do never imports it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from instep.errors import UserError
from instep.servers.address import ServerAddress, server_address

if TYPE_CHECKING:
    from instep.postgres.connection import Session

#: The name of what PostgreSQL names has at most so many bytes; it would cut off the rest.
MAX_NAME: Final = 63


@dataclass(frozen=True, slots=True)
class Location:
    """A schema of a database. Shows no secrets."""

    uri: str = field(repr=False)
    schema: str

    @property
    def address(self) -> ServerAddress:
        return server_address(self.uri)

    def demand_understood(self) -> None:
        """Check the address and the schema. Raises `UserError` for what cannot be one."""
        try:
            address = self.address
        except ValueError as error:
            raise UserError(f"the address of PostgreSQL {error}") from None
        if address.kind != "postgresql":
            raise UserError(f"{address.label} is not an address of PostgreSQL", hint="It begins with postgresql://")
        if not self.schema or "\0" in self.schema or len(self.schema.encode()) > MAX_NAME:
            raise UserError(f"{self.schema!r} cannot name a schema", where=address.label)

    @property
    def shown(self) -> str:
        return self.address.label

    def session(self) -> AbstractContextManager[Session]:
        """A connection of its own. Not shared between threads."""
        from instep.postgres.connection import opened

        return opened(self)
