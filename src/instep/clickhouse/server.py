"""A ClickHouse server, over HTTP."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from instep.clickhouse.address import ServerAddress
from instep.clickhouse.session import STAGED, explained, literal, plain
from instep.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa


def session(address: ServerAddress) -> ServerSession:
    return ServerSession(_client(address, os.getpid()), address)


@cache
def _client(address: ServerAddress, process: int) -> Any:
    """Kept: making one asks the server several things. Its connections are no good to a fork (`process`)."""
    try:
        import clickhouse_connect
    except ImportError:
        raise UserError(
            "a ClickHouse server needs clickhouse-connect", hint="pip install 'instep[clickhouse]'"
        ) from None
    from clickhouse_connect.driver.exceptions import ClickHouseError

    try:
        return clickhouse_connect.get_client(
            host=address.host,
            port=address.port,
            username=address.user,
            password=address.password,
            secure=address.secure,
            # The database may not be there yet: every name says it.
            database="default",
            # A statement of a session that is busy would be refused; ours need none.
            autogenerate_session_id=False,
        )
    except ClickHouseError as error:
        raise explained(address.without_secrets(str(error)), address.shown) from None


class ServerSession:
    """See `Session`."""

    def __init__(self, client: Any, address: ServerAddress) -> None:
        self._client = client
        self._address = address

    def command(self, sql: str, **parameters: Any) -> None:
        with self._understood():
            self._client.command(sql, parameters=_bound(parameters))

    def arrow(self, sql: str, **parameters: Any) -> pa.Table:
        with self._understood():
            table: pa.Table = self._client.query_arrow(sql, parameters=_bound(parameters), use_strings=False)
            return table

    def insert(self, table: str, rows: pa.Table) -> None:
        with self._understood():
            self._client.insert_arrow(table, rows)

    def load(self, sql: str, structure: str, path: str, **parameters: Any) -> None:
        import fsspec

        with fsspec.open(path, "rb") as file:
            data = file.read()
        statement = sql.replace(STAGED, f"input({literal(structure)})") + " FORMAT ArrowStream"
        with self._understood():
            self._client.command(statement, parameters=_bound(parameters), data=data)

    @contextlib.contextmanager
    def _understood(self) -> Iterator[None]:
        from clickhouse_connect.driver.exceptions import ClickHouseError

        try:
            yield
        except ClickHouseError as error:
            raise explained(self._address.without_secrets(str(error)), self._address.shown) from None


def _bound(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in parameters.items()}
