"""Messages of other programs become wants in the ledger: a want for each entity of the scope that one asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from instep.bus.bus import Bus, Inbox, Message
from instep.domain.events import WantCreated
from instep.domain.refs import PartitionRef
from instep.domain.requests import Kind, Request, RequestError, decode
from instep.domain.texts import clause, cleaned
from instep.entities.generations import generation_of
from instep.errors import Conflict, InstepError
from instep.ledger.ledger import Ledger
from instep.telemetry.progress import Progress

#: The clock of who publishes may be ahead of the ledger's by so much, in milliseconds.
_AHEAD: Final = 24 * 3_600_000
#: So long one question for the next message is held open, in seconds.
_LISTEN: Final = 0.2
_BY: Final = "message"


class Messages:
    """Takes the messages of a bus, if it has any. `entities` are those that a project declares, with their kind."""

    def __init__(
        self, bus: Callable[[], Bus], ledger: Ledger, entities: Mapping[str, Kind], progress: Progress
    ) -> None:
        self._bus = bus
        self._ledger = ledger
        self._entities = entities
        self._progress = progress
        self._inbox: Inbox | None = None
        self._said = ""

    def take(self) -> bool:
        """Store all that wait. An outage is said once, and passes. False when the bus never has any."""
        try:
            inbox = self._inbox or self._bus().inbox()
            if inbox is None:
                return False
            self._inbox = inbox
            while (message := inbox.next(_LISTEN)) is not None:
                try:
                    self._store(inbox, message)
                except InstepError:
                    inbox.give_back(message)
                    raise
            self._said = ""
        except InstepError as error:
            if str(error) != self._said:
                self._said = str(error)
                self._progress.say("bus", f"{clause(error)}; trying again")
        return True

    def _store(self, inbox: Inbox, message: Message) -> None:
        """Acknowledged when the wants are in the ledger, never before."""
        names = [name for name, kind in self._entities.items() if message.scope and kind is Kind.of(message.scope)]
        try:
            request = self._request(message)
        except RequestError as error:
            reason = cleaned(f"the request cannot be read: {error}")
            inbox.refuse(message, names, reason)
            self._progress.say("bus", f"message {message.id} was refused: {reason}")
            return
        self._want(message, [PartitionRef(name, request.scope) for name in names], request.watermark // 1_000)
        inbox.ack(message)

    def _request(self, message: Message) -> Request:
        if message.scope is None:
            raise RequestError("its subject names no scope")
        request = decode(message.data)
        if request.scope != message.scope:
            raise RequestError(f"it is for {request.scope}, its subject for {message.scope}")
        if request.watermark // 1_000 > self._ledger.now() + _AHEAD:
            raise RequestError("watermark: is more than a day ahead")
        return request

    def _want(self, message: Message, refs: list[PartitionRef], as_of: int) -> None:
        """Once, however often the message is delivered: a want's id follows from the message's."""
        ids = {ref: str(uuid5(NAMESPACE_URL, f"instep:{message.id} {ref.entity}")) for ref in refs}
        for ref, id in ids.items():
            if self._ledger.wants.get(id) is not None:
                continue
            event = WantCreated(
                want=id,
                refs=(str(ref),),
                generation=generation_of(self._ledger, ref, None),
                as_of=as_of,
                by=_BY,
                traceparent=message.trace,
            )
            try:
                self._ledger.events.append([event])
            except Conflict:
                if self._ledger.wants.get(id) is None:
                    raise
