"""The bus on NATS JetStream: a stream of messages, and a bucket for status keys."""

from __future__ import annotations

from functools import partial

from instep.bus.bus import StatusKeys
from instep.bus.nats.connection import OUTAGE_SECONDS, Connection
from instep.bus.nats.inbox import NatsInbox
from instep.bus.nats.status import NatsStatusKeys
from instep.domain.refs import Scope
from instep.domain.requests import subject_of
from instep.servers.address import NatsAddress


def open_nats(address: NatsAddress, *, outage: float = OUTAGE_SECONDS) -> NatsBus:
    """Open the bus. `outage`: how many seconds a server may be away. Raises `UserError` when it cannot be opened."""
    return NatsBus(Connection(address, outage=outage))


class NatsBus:
    """Implements `bus.Bus`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._status = NatsStatusKeys(connection)

    def close(self) -> None:
        self._connection.close()

    def stop_waiting(self) -> None:
        self._connection.stop_waiting()

    @property
    def status(self) -> StatusKeys:
        return self._status

    def inbox(self) -> NatsInbox:
        return NatsInbox(self._connection)

    def purge(self, namespace: Scope) -> None:
        connection = self._connection
        jetstream = connection.client.jetstream(timeout=connection.timeout)
        subject = f"{connection.address.prefix}.{subject_of(namespace)}"
        for pattern in (subject, f"{subject}.>"):
            purge = partial(jetstream.purge_stream, connection.requests, subject=pattern)
            connection.run(connection.with_retries(purge, writes=True))
