"""A connection to NATS that outlives its server: what is asked of it is asked again until it is answered."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

import nats.js.errors
from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.js.api import KeyValueConfig, StorageType, StreamConfig
from nats.js.errors import APIError, NotFoundError
from nats.js.kv import KV_OP

from instep.bus.nats.loop import Loop
from instep.domain.requests import MAX_BYTES
from instep.domain.status import MAX_VALUE
from instep.errors import Away, Transient, Unknown, UserError
from instep.servers.address import NatsAddress

T = TypeVar("T")

CONNECT_SECONDS: Final = 10.0
#: How long a server may be away in mid-run. Everything is asked in a way that asking twice does no harm.
OUTAGE_SECONDS: Final = 30.0
#: A server may hang up before it has said that it refuses a login.
_TRIES: Final = 3
_ANSWER_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.05
#: A server that has not answered what must not wait is not asked such a thing again for so long.
_SILENT_SECONDS: Final = 5.0
#: The same request is recognised for so long.
_DUPLICATES_SECONDS: Final = 120.0

_OUTAGES: Final = (
    TimeoutError,
    asyncio.TimeoutError,
    ConnectionError,
    nats.errors.ConnectionClosedError,
    nats.errors.ConnectionReconnectingError,
    nats.errors.NoRespondersError,
    nats.errors.OutboundBufferLimitError,
    nats.errors.StaleConnectionError,
    nats.js.errors.NoStreamResponseError,
    nats.js.errors.ServiceUnavailableError,
)
#: What a server says to a write that was made for another revision.
_WRONG_REVISION: Final = (10071, 10164)


#: Takes a message's subject, reply, data and whether its headers say that a key was deleted.
Take = Callable[[str, str, bytes, bool], None]


class _Client(Client):
    """Hands a subscription's messages over as they are read, without a queue and a coroutine for each: so thousands
    take a third of the time. Leaves no connection behind that failed, as the library does when it connects again,
    or is stopped while it closes. Continues reading after invalid headers, which any client may have published.
    All are a look behind the library's doors. Should they be elsewhere one day, nothing is taken, closed or passed over
    here, and all goes the usual way.
    """

    def __init__(self) -> None:
        super().__init__()
        self._takers: dict[int, Take] = {}

    @contextlib.contextmanager
    def taking(self, subscription: Subscription, take: Take) -> Iterator[None]:
        number = getattr(subscription, "_id", -1)
        self._takers[number] = take
        try:
            yield
        finally:
            del self._takers[number]

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        take = self._takers.get(sid)
        if take is None:
            await super()._process_msg(sid, subject, reply, data, headers or b"")
        else:
            take(subject.decode(), reply.decode(), data, headers is not None and KV_OP.encode() in headers)

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        try:
            return await super()._process_headers(headers)
        except (IndexError, ValueError):
            return None

    async def _connect_to_server(self, *args: Any) -> None:
        self.hang_up()
        await super()._connect_to_server(*args)

    def hang_up(self) -> None:
        """Without logging: callers have logged it."""
        transport = getattr(self, "_transport", None)
        for each in ("_io_writer", "_bare_io_writer"):
            writer = getattr(transport, each, None)
            if writer is not None:
                # Of a TLS connection that was lost, the first releases of Python 3.11 abort nothing.
                with contextlib.suppress(AttributeError):
                    writer.transport.abort()


class Connection:
    """May be shared by threads. `run` is for these, everything else for the loop."""

    def __init__(self, address: NatsAddress, *, outage: float = OUTAGE_SECONDS) -> None:
        self.address = address
        self.client = _Client()
        self.requests = f"{address.prefix}_requests"
        self.status = f"{address.prefix}_status"
        #: How long one answer is waited for.
        self.timeout = min(_ANSWER_SECONDS, outage)
        self._outage = outage
        self._silent_until = 0.0
        self._stopping = False
        self._closing = False
        self._errors: list[Exception] = []
        self._refused = asyncio.Event()
        self._loop = Loop("instep-nats")
        try:
            self._loop.run(self._open())
        except BaseException:
            self._loop.close()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run(work)
        except nats.errors.Error as error:
            raise _known(error, self.address.label) from error

    def stop_waiting(self) -> None:
        """From now on an outage is not waited out: each request is tried once."""
        self._stopping = True

    def close(self) -> None:
        self._closing = True
        try:
            self._loop.run(self._close())
        finally:
            self._loop.close()

    async def _close(self) -> None:
        if self.client.is_connected:
            # What was not sent is found again by who comes next.
            with contextlib.suppress(*_OUTAGES):
                await self.client.flush(timeout=5)
        await self._hang_up()

    async def _hang_up(self) -> None:
        with contextlib.suppress(*_OUTAGES):
            await self.client.close()
        self.client.hang_up()

    # Opening.

    async def _open(self) -> None:
        try:
            await self._connect()
            await self._make_places()
        except Exception as error:
            await self._hang_up()
            raise _refusal([*self._errors, error], self.address.label) from None

    async def _connect(self) -> None:
        """Once it is connected, it comes again for ever; until then, every server is tried a few times."""
        address = self.address
        connecting = asyncio.create_task(
            self.client.connect(
                servers=list(address.servers),
                name="instep",
                user=address.user,
                password=address.password,
                token=address.token,
                tls=_tls(address),
                error_cb=self._note,
                connect_timeout=2,
                reconnect_time_wait=1,
                max_reconnect_attempts=-1,
            )
        )
        refused = asyncio.create_task(self._refused.wait())
        tasks = {connecting, refused}
        await asyncio.wait(tasks, timeout=CONNECT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not connecting.done():
            connecting.cancel()
            await asyncio.wait({connecting})
            raise TimeoutError
        refused.cancel()
        await connecting

    async def _note(self, error: Exception) -> None:
        if not self.client.is_connected:
            tries = _TRIES * len(self.address.servers)
            self._errors = [*self._errors, error][-tries:]
            if len(self._errors) == tries or _is_login(error):
                self._refused.set()

    async def _make_places(self) -> None:
        """Streams and buckets that are there are left as they are: their owner may have given them replicas."""
        jetstream, prefix = self.client.jetstream(), self.address.prefix
        try:
            await jetstream.stream_info(self.requests)
        except NotFoundError:
            await jetstream.add_stream(
                StreamConfig(
                    name=self.requests,
                    subjects=[f"{prefix}.request.>"],
                    max_msgs_per_subject=1,
                    max_msg_size=4 * MAX_BYTES,
                    storage=StorageType.FILE,
                    duplicate_window=_DUPLICATES_SECONDS,
                    allow_direct=True,
                )
            )
        try:
            await jetstream.stream_info(f"KV_{self.status}")
        except NotFoundError:
            config = KeyValueConfig(self.status, max_value_size=2 * MAX_VALUE, storage=StorageType.FILE, direct=True)
            await jetstream.create_key_value(config)

    # Asking.

    async def at_once(self, ask: Callable[[], Awaitable[T]], *, writes: bool = False) -> T:
        """`ask`, again only if an answer was lost, and not at all while the server is known to be away: for what must
        not delay anything.
        """
        now = time.monotonic()
        if not self.client.is_connected or now < self._silent_until:
            raise Transient(f"{self.address.label}: the bus is away")
        try:
            return await self.with_retries(ask, writes=writes, outage=self.timeout)
        except (Transient, Unknown):
            self._silent_until = time.monotonic() + _SILENT_SECONDS
            raise

    async def with_retries(
        self, ask: Callable[[], Awaitable[T]], *, writes: bool = False, outage: float | None = None
    ) -> T:
        """`ask` again while the server is away. With `writes`, it may have had its effect when it is given up."""
        deadline = time.monotonic() + (self._outage if outage is None else outage)
        while True:
            try:
                return await ask()
            except _OUTAGES as error:
                if self._closing:
                    raise asyncio.CancelledError from error
                if time.monotonic() < deadline and not self._stopping:
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                if writes:
                    raise Unknown(f"{self.address.label}: the bus did not say what became of a change") from error
                raise Transient(f"{self.address.label}: the bus does not answer") from error


def is_wrong_revision(error: APIError) -> bool:
    return error.err_code in _WRONG_REVISION


def _tls(address: NatsAddress) -> ssl.SSLContext | None:
    if not address.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=address.tls_ca)
        if address.tls_cert is not None:
            context.load_cert_chain(address.tls_cert, address.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise UserError(
            "a certificate in the bus's URL cannot be read",
            where=address.label,
            hint="Check the files of tls_ca, tls_cert and tls_key.",
        ) from error
    return context


def _is_login(error: Exception) -> bool:
    return isinstance(error, nats.errors.AuthorizationError) or "authorization" in str(error).lower()


def _refusal(errors: list[Exception], where: str) -> Exception:
    """The error to raise for those that the client met while it connected, the last one last."""
    error = errors[-1]
    if isinstance(error, UserError):
        return error
    if any(map(_is_login, errors)):
        return UserError(
            "the bus's server refused the user, the password or the token",
            where=where,
            hint="Check them in `bus:`; write ${NAME} there to take them from the environment.",
        )
    if isinstance(error, nats.js.errors.ServiceUnavailableError | nats.errors.NoRespondersError):
        return UserError(
            "the bus's server has no JetStream, or the user no right to it",
            where=where,
            hint="Start it with -js, and give the user the rights that docs/bus.md lists.",
        )
    if isinstance(error, APIError):
        return _known(error, where)
    return Away(
        f"the bus cannot be reached ({type(errors[0]).__name__})",
        where=where,
        hint="Check host and port in `bus:`, and that the server runs and can be reached from here.",
    )


def _known(error: nats.errors.Error, where: str) -> Exception:
    if isinstance(error, APIError) and error.code != 503:
        return UserError(
            f"the bus's server refused a request ({error.description})",
            where=where,
            hint="docs/bus.md lists the rights and the room that Instep needs there.",
        )
    return Transient(f"{where}: the bus does not answer ({type(error).__name__})")
