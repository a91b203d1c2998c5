"""The port of buses. Its contract suite is `tests/contracts/bus`.

Requests are published on the subject of their scope. Every handler has a durable consumer of its own, by the name of
its entity, on the subjects of one kind of scope: none waits for another. Of a handler's requests in one scope at most
one is in work, on whichever server, and one waits at most: the newest.

Every answer about a delivery shows its fence; an answer under a fence that was overtaken raises `errors.Fenced` and
changes nothing. `errors.Transient` means that a call had no effect, `errors.Unknown` that it may have had one: every
call may then be repeated. Times are milliseconds by the bus's own clock (rule 12).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from instep.domain.refs import PartitionRef, Scope
from instep.domain.request_rules import Policy
from instep.domain.requests import Kind, Request


@dataclass(frozen=True, slots=True)
class Delivery:
    """A request in work. `entity` is the consumer's name; `attempt` counts from 1."""

    entity: str
    request: Request
    attempt: int
    fence: int
    #: In which it was asked for, if in one: see `telemetry.context`.
    trace: str = field(default="", compare=False)
    #: How the bus itself finds the message again.
    token: str = field(default="", repr=False, compare=False)

    @property
    def ref(self) -> PartitionRef:
        return PartitionRef(self.entity, self.request.scope)

    @property
    def id(self) -> str:
        """Unique for ever: `MergeRequest@42/9970#3`."""
        return f"{self.ref}#{self.fence}"


@dataclass(frozen=True, slots=True)
class Message:
    """What a program has published. `id` is the publisher's, or the stream's, the same at every delivery; `scope` that
    of its subject, None if it names none.
    """

    id: str
    scope: Scope | None
    data: bytes
    trace: str = ""
    token: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The newest request that was given up for a handler in a scope, which is its name."""

    entity: str
    request: Request
    attempts: int
    reason: str
    at: int

    @property
    def ref(self) -> PartitionRef:
        return PartitionRef(self.entity, self.request.scope)


@dataclass(frozen=True, slots=True)
class StatusEntry:
    """A status key. A value that cannot be read is None, and `unreadable` says why: that is Unknown, not nothing."""

    key: str
    value: Mapping[str, Any] | None
    revision: int
    unreadable: str | None = None


class Consumer(Protocol):
    """A handler's deliveries. May be shared by threads, and opened many times on any number of servers."""

    @property
    def name(self) -> str: ...

    def next(self, timeout: float = 0.0) -> Delivery | None:
        """The next request that can be taken; None when there is none within `timeout` seconds. (Without one, what was
        published a moment ago may be missed.)

        A request whose worker said nothing for the policy's ack wait is delivered again. If that was its last
        attempt, it becomes a dead letter.
        """

    def ack(self, delivery: Delivery) -> None:
        """It is done. Dead letters of its scope that are not newer are covered by it, and go. Again it changes
        nothing.
        """

    def retry(self, delivery: Delivery, reason: str, *, delay: int | None = None) -> bool:
        """Try it again after `delay`, by default the pause of the policy: True. After its last attempt it becomes
        a dead letter: False. Again it changes nothing.
        """

    def postpone(self, delivery: Delivery, *, delay: int = 0) -> None:
        """It was not tried after all (its handler stops, what it needs is away): put it back, to be taken after
        `delay`. The attempt does not count. Again it changes nothing.
        """

    def dead(self, delivery: Delivery, reason: str) -> None:
        """It will never succeed: make it a dead letter. Again it changes nothing."""

    def extend(self, delivery: Delivery) -> None:
        """It is still in work: its ack wait begins anew."""


class Inbox(Protocol):
    """The messages that other programs publish, each for one of all workers. One that was not answered comes again."""

    def next(self, timeout: float) -> Message | None:
        """None when there is none within `timeout` seconds."""

    def ack(self, message: Message) -> None:
        """It is stored."""

    def give_back(self, message: Message) -> None:
        """It could not be stored now: it comes again soon."""

    def refuse(self, message: Message, entities: Sequence[str], reason: str) -> None:
        """It can never be done: a dead letter of each of these entities, in the scope of its subject."""


class StatusKeys(Protocol):
    """Keys `status.…`, each with a revision that grows with every change. A key with one writer needs no lock."""

    def put(self, key: str, value: Mapping[str, Any], *, revision: int | None = None) -> int:
        """Set it and return its new revision. With `revision`, only if it still has that one (0: if there is no
        such key); else raises `Conflict`.
        """

    def get(self, key: str) -> StatusEntry | None: ...

    def delete(self, key: str, *, revision: int | None = None) -> None:
        """Again it changes nothing, unless `revision` says which one is meant: then as `put`."""

    def under(self, prefix: str) -> list[StatusEntry]:
        """The key `prefix` and all below it (`status.42` has `status.42.9970.Issue`, not `status.421.Issue`), by
        key.
        """


class Bus(Protocol):
    def close(self) -> None: ...

    @property
    def status(self) -> StatusKeys: ...

    def publish(self, *requests: Request) -> None:
        """Ask all handlers of their kinds for these, in the trace of this thread. One that is not newer than what was
        last asked in its scope changes nothing. Handlers that are new get the last request of every scope.
        """

    def forget(self, namespace: Scope) -> list[PartitionRef]:
        """Forget what was asked of a namespace, and of those in it: no handler gets it any more, one that is new
        neither; who is at it is fenced; dead letters are gone. Returns the partitions of which something waited or was
        in work. What is asked after that is delivered if it is newer. Again it changes nothing.
        """

    def consumer(self, name: str, kind: Kind, policy: Policy) -> Consumer:
        """The durable consumer of the entity `name`; made when it is new, and brought to this kind and policy."""

    def inbox(self) -> Inbox | None:
        """None where no other program can publish: what is asked in the ledger is a want there already."""

    def reconcile(self) -> list[DeadLetter]:
        """By any worker, at its start and from time to time: requests that were in work for the last time under
        workers that are silent become dead letters (which are returned), even if no consumer asks for them again.
        """

    def dead_letters(self, name: str | None = None) -> list[DeadLetter]:
        """Of one consumer, or of all, by name and scope."""

    def requeue(self, name: str, scope: Scope) -> None:
        """Try a dead letter again, with all its attempts, in the trace of this thread; it is dropped when a newer
        request of the scope waits or is in work. Raises `Conflict` when there is none.
        """

    def drop(self, name: str, scope: Scope) -> None:
        """Forget a dead letter. Raises `Conflict` when there is none."""
