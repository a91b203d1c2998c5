"""A bus whose messages are in memory: published by a test, delivered until they are acknowledged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from instep.bus.bus import Message
from instep.domain.refs import Scope
from instep.domain.requests import GlobalRequest, NamespaceRequest, Request, encode, subject_of


class Published(NamedTuple):
    id: str
    scope: Scope | None
    data: bytes


def request_for(scope: Scope, as_of: int) -> Request:
    """As of milliseconds."""
    return GlobalRequest(as_of * 1_000) if scope.is_global else NamespaceRequest(scope.path, as_of * 1_000)


@dataclass
class MemoryMessages:
    """Implements `bus.Inbox`, and as much of `bus.Bus` as messages need. What was not acknowledged is delivered again
    at the next question, before anything else.
    """

    waiting: list[Published] = field(default_factory=list)
    given: dict[str, Published] = field(default_factory=dict)
    acknowledged: list[str] = field(default_factory=list)

    def publish(self, scope: Scope, as_of: int, *, id: str | None = None) -> str:
        name = id or f"{scope}@{as_of}"
        self.send(name, scope, encode(request_for(scope, as_of)))
        return name

    def send(self, id: str, scope: Scope | None, data: bytes) -> None:
        self.waiting.append(Published(id, scope, data))

    def inbox(self) -> MemoryMessages:
        return self

    def next(self, timeout: float) -> Message | None:
        if not self.waiting:
            return None
        found = self.waiting.pop(0)
        self.given[found.id] = found
        return Message(found.id, found.scope, found.data, subject_of(found.scope) if found.scope else "")

    def ack(self, message: Message) -> None:
        self.given.pop(message.id, None)
        self.acknowledged.append(message.id)

    def give_back(self, message: Message) -> None:
        if message.id in self.given:
            self.waiting.append(self.given.pop(message.id))

    def redeliver(self) -> None:
        """Who took them was silent for too long."""
        self.waiting = [*self.given.values(), *self.waiting]
        self.given.clear()

    def withdrawn(self, message: Message) -> bool:
        return message.id not in self.given

    def purge(self, namespace: Scope) -> None:
        gone = [each.id for each in self.given.values() if each.scope and each.scope.within(namespace)]
        for id in gone:
            del self.given[id]
        self.waiting = [each for each in self.waiting if not (each.scope and each.scope.within(namespace))]
