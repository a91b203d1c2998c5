"""The port of buses. Its contract suite is `tests/contracts/bus`.

Other programs publish messages on the subjects of scopes; `requests.messages` stores them as wants. `errors.Transient`
means that a call had no effect, `errors.Unknown` that it may have had one: every call may then be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from instep.domain import status
from instep.domain.refs import Scope
from instep.errors import Conflict


@dataclass(frozen=True, slots=True)
class Message:
    """A message that a program has published. `id` is the publisher's, or the stream's, the same at every delivery;
    `scope` that of its subject, None if it names none. `trace`: in which it was published, if in one (see
    `telemetry.context`).
    """

    id: str
    scope: Scope | None
    data: bytes
    subject: str = ""
    trace: str = ""
    token: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class StatusEntry:
    """A status key. A value that cannot be read is None, and `unreadable` says why: that is Unknown, not nothing."""

    key: str
    value: Mapping[str, Any] | None
    revision: int
    unreadable: str | None = None


class Inbox(Protocol):
    """The messages that other programs publish, each for one of all workers. One that was not answered comes again."""

    def next(self, timeout: float) -> Message | None:
        """None when there is none within `timeout` seconds."""

    def ack(self, message: Message) -> None:
        """It is stored."""

    def give_back(self, message: Message) -> None:
        """It could not be stored now: it comes again soon."""

    def withdrawn(self, message: Message) -> bool:
        """Whether everything that was asked in its scope has been purged since it was taken."""


class StatusKeys(Protocol):
    """Keys `status.…`, each with a revision that grows with every change. A single writer needs no lock."""

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
    """May be shared by threads."""

    def close(self) -> None: ...

    def stop_waiting(self) -> None:
        """From now on wait for no server that is away: this process stops."""

    @property
    def status(self) -> StatusKeys: ...

    def inbox(self) -> Inbox | None:
        """None where no other program can publish: what is asked in the ledger is a want there already."""

    def purge(self, namespace: Scope) -> None:
        """Forget the messages for a namespace, and those in it, that no worker has stored. Idempotent."""


def check_revision(key: str, found: int, wanted: int | None) -> None:
    """`found` is 0 for a key that is not there."""
    if wanted is not None and found != wanted:
        raise Conflict(f"{key} has changed: its revision is {found}, not {wanted}")


def entry_of(key: str, data: str | bytes, revision: int) -> StatusEntry:
    try:
        return StatusEntry(key, status.decode(data), revision)
    except status.StatusKeyError as error:
        return StatusEntry(key, None, revision, unreadable=str(error))
