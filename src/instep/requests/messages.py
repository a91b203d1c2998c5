"""Messages of other programs become wants in the ledger: a want for each entity of the scope that one asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from instep.bus.bus import Bus, Inbox, Message
from instep.domain.events import WantCanceled, WantFailed
from instep.domain.refs import PartitionRef, Scope, nested
from instep.domain.requests import Kind, Request, RequestError, decode
from instep.domain.texts import clause, cleaned
from instep.domain.wants import Retries
from instep.errors import Conflict, InstepError
from instep.ledger.ledger import Ledger
from instep.requests.wants import want_of_program
from instep.telemetry import traces
from instep.telemetry.context import in_trace
from instep.telemetry.progress import Progress

#: The clock of who publishes may be ahead of the ledger's by so much, in milliseconds.
_AHEAD: Final = 24 * 3_600_000
#: So long one question for the next message is held open, in seconds.
_LISTEN: Final = 0.2
_BY: Final = "message"


class Messages:
    """Takes the messages of a bus, if it has any. `entities` are those that a project declares, with their kind,
    and `namespaces` those that it declares; `retries` says how often what is asked of a partition is tried.
    """

    def __init__(
        self,
        bus: Callable[[], Bus],
        ledger: Ledger,
        entities: Mapping[str, Kind],
        progress: Progress,
        retries: Callable[[PartitionRef], Retries] = lambda _: Retries(),
        *,
        namespaces: Sequence[Scope] = (),
    ) -> None:
        self._bus = bus
        self._ledger = ledger
        self._entities = entities
        self._progress = progress
        self._retries = retries
        self._namespaces = namespaces
        self._inbox: Inbox | None = None
        self._said = ""
        self._stopped = False

    def stop(self) -> None:
        """Before the bus is closed: a question that waits for an answer ends with that."""
        self._stopped = True

    def take(self) -> bool:
        """Store all that wait. An outage is said once, and passes. False when the bus never has any."""
        try:
            inbox = self._inbox or self._bus().inbox()
            if inbox is None:
                return False
            self._inbox = inbox
            while not self._stopped and (message := inbox.next(_LISTEN)) is not None:
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
        except RuntimeError:
            if not self._stopped:
                raise
        return not self._stopped

    def _store(self, inbox: Inbox, message: Message) -> None:
        """Acknowledged when the wants are in the ledger, never before."""
        names = [name for name, kind in self._entities.items() if message.scope and kind is Kind.of(message.scope)]
        refs = [PartitionRef(name, message.scope) for name in names if message.scope]
        try:
            as_of = self._request(message).watermark // 1_000
            wanted = [self._want(message, ref, as_of) for ref in refs]
        except RequestError as error:
            reason = cleaned(f"the request is not valid: {error}")
            wanted = [self._want(message, ref, self._ledger.present(), refused=reason) for ref in refs]
            self._progress.say("bus", f"message {message.id} was refused: {reason}")
        # A namespace that was deleted since the message was taken: its wants were canceled before these were made.
        if wanted and inbox.withdrawn(message):
            for id in wanted:
                with suppress(Conflict):
                    self._ledger.events.append([WantCanceled(want=id, why="its namespace was deleted")])
        inbox.ack(message)

    def _request(self, message: Message) -> Request:
        if message.scope is None:
            raise RequestError("its subject names no scope")
        request = decode(message.data)
        if request.scope != message.scope:
            raise RequestError(f"it is for {request.scope}, its subject for {message.scope}")
        if request.watermark // 1_000 > self._ledger.now() + _AHEAD:
            raise RequestError("watermark: is more than a day ahead")
        if found := nested([message.scope, *self._namespaces]):
            outer, inner = found
            raise RequestError(f"namespace {inner} lies in namespace {outer}, and their rows would be the same")
        return request

    def _want(self, message: Message, ref: PartitionRef, as_of: int, *, refused: str = "") -> str:
        """Its id. Once, however often the message is delivered: a want's id follows from the message's. What is
        `refused` has failed for good: a dead letter.
        """
        id = str(uuid5(NAMESPACE_URL, f"instep:{message.id} {ref.entity}"))
        if self._ledger.wants.get(id) is None:
            with in_trace(message.trace), traces.span("request", want=id, refs=str(ref), by=_BY):
                made = want_of_program(self._ledger, id, ref, as_of=as_of, by=_BY, retries=self._retries(ref))
            failed = [WantFailed(want=id, error=refused, final=True)] if refused else []
            try:
                self._ledger.events.append([made, *failed])
            except Conflict:
                # Another worker was faster; or what it may have asked for is there.
                if not refused and self._ledger.wants.get(id) is None:
                    raise
        return id
