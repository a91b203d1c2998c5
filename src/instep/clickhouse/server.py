"""A ClickHouse server, over HTTP."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import IO, TYPE_CHECKING, Any

from instep.clickhouse.session import STAGED, ServerAddress, demanded, explained, literal, plain
from instep.errors import UserError
from instep.servers.calls import GREETING, within

if TYPE_CHECKING:
    import pyarrow as pa


#: What an Arrow stream ends with. An answer without it was broken off: by then the server has said that all is well.
_END = b"\xff\xff\xff\xff\0\0\0\0"
#: Enough of a broken answer's end to hold what the server says of the reason.
_LAST_WORDS = 16_384
_REASON = re.compile(r"Code: \d+\. DB::.*", re.DOTALL)


def session(address: ServerAddress, *, database: str = "default") -> ServerSession:
    """`database` is where names are looked for that do not say theirs; it has to be there."""
    return ServerSession(_client(address, database, os.getpid()), address)


@cache
def _client(address: ServerAddress, database: str, process: int) -> Any:
    """Kept: making one asks the server several things. Its connections are no good to a fork (`process`)."""
    try:
        import clickhouse_connect
    except ImportError:
        raise UserError(
            "a ClickHouse server needs clickhouse-connect", hint="pip install 'instep[clickhouse]'"
        ) from None
    from clickhouse_connect.driver.exceptions import ClickHouseError

    # What it would write to the screen is in the error that is raised.
    logging.getLogger("clickhouse_connect").addHandler(logging.NullHandler())
    try:
        client: Any = within(
            GREETING,
            partial(
                clickhouse_connect.get_client,
                host=address.host,
                port=address.port,
                username=address.user,
                password=address.password,
                secure=address.secure,
                database=database,
                # A statement of a session that is busy would be refused; ours need none.
                autogenerate_session_id=False,
            ),
        )
        for name, value in demanded(client.server_settings, address.shown).items():
            client.set_client_setting(name, value)
    except TimeoutError as error:
        raise explained(str(error), address.shown) from None
    except ClickHouseError as error:
        raise explained(address.without_secrets(str(error)), address.shown) from None
    return client


class ServerSession:
    """See `Session`. Long parameters are fields of a form, of which a server takes 128 KB each (its
    `http_max_field_value_size`).
    """

    room = 120_000

    def __init__(self, client: Any, address: ServerAddress, settings: Mapping[str, str | int] | None = None) -> None:
        self._client = client
        self._address = address
        self._settings = dict(settings or {})

    def under(self, settings: Mapping[str, str | int]) -> ServerSession:
        return ServerSession(self._client, self._address, settings)

    def command(self, sql: str, **parameters: Any) -> None:
        values = _bound(parameters)
        # A command has its parameters in the address, however long they are.
        longer = any(isinstance(each, list) for each in values.values())
        run = self._client.raw_query if longer else self._client.command
        with self._understood():
            run(sql, parameters=values, settings=self._settings)

    def arrow(self, sql: str, **parameters: Any) -> pa.Table:
        with self._understood():
            values = _bound(parameters)
            table: pa.Table = self._client.query_arrow(sql, values, settings=self._settings, use_strings=False)
            return table

    def spool(self, sql: str, file: IO[bytes], *, block_rows: int, **parameters: Any) -> None:
        settings = {"output_format_arrow_string_as_string": 0, "max_block_size": block_rows}
        with self._understood():
            answer = self._client.raw_stream(sql, parameters=_bound(parameters), settings=settings, fmt="ArrowStream")
            with contextlib.closing(answer):
                broken = _copied(answer, file)
        if broken is not None:
            raise explained(self._address.without_secrets(broken), self._address.shown)

    def insert(self, table: str, rows: pa.Table) -> None:
        with self._understood():
            self._client.insert_arrow(table, rows)

    def load(self, sql: str, structure: str, paths: Sequence[str], **parameters: Any) -> None:
        data = _one_stream(paths)
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


def _one_stream(paths: Sequence[str]) -> bytes:
    """Join files of Arrow streams that have the same columns."""
    import fsspec
    import pyarrow as pa

    sink, writer = pa.BufferOutputStream(), None
    for path in paths:
        with fsspec.open(path, "rb") as file, pa.ipc.open_stream(file) as stream:
            writer = writer or pa.ipc.new_stream(sink, stream.schema)
            for batch in stream:
                writer.write_batch(batch)
    if writer is not None:
        writer.close()
    return sink.getvalue().to_pybytes()


def _copied(answer: IO[bytes], file: IO[bytes]) -> str | None:
    """The answer is in the file; if it was broken off, why."""
    from urllib3.exceptions import HTTPError

    ended, said = b"", ""
    try:
        while piece := answer.read(2**20):
            file.write(piece)
            ended = (ended + piece)[-_LAST_WORDS:]
    except (HTTPError, OSError) as error:
        said = str(error)
    if not said and ended.endswith(_END):
        return None
    found = _REASON.search(ended.decode(errors="replace"))
    return found[0] if found else said or "the answer was broken off"


def _bound(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in parameters.items()}
