"""The outbox of lineage: the log of events, sent on as events of OpenLineage from where it was sent last."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct

from instep.domain import events as e
from instep.domain.clock import Background, Clock
from instep.domain.open_lineage import OpenRun, Translator
from instep.domain.texts import cleaned
from instep.errors import Conflict, InstepError, Transient
from instep.ledger.ledger import Ledger
from instep.telemetry.progress import Progress

#: The key in the ledger under which it is kept how far the log was sent.
_KEY: Final = "cursor.openlineage"
#: Events of the log that are read at once.
_ROWS: Final = 1_000
#: Milliseconds for which a process that sends an event does so alone: longer than a slow server is waited for.
_HOLD: Final = 30_000
#: Seconds after which it is written down how far it is, and for which a run waits for the receiver at its end.
_KEEP: Final = 1.0
_AT_END: Final = 5.0
#: Seconds between looks at the log, and between tries when the receiver is away: the first and the longest.
_EVERY: Final = 2.0
_FIRST_REST, _LONGEST_REST = 2.0, 60.0
_NAME: Final = "lineage"


class Receiver(Protocol):
    """Takes events of OpenLineage. Raises `Transient` when it is away, `UserError` for an event that it refuses."""

    def send(self, event: Mapping[str, Any]) -> None: ...


class _Cursor(Struct, frozen=True):
    """The last event of the log that was sent, runs that had started by then, and until when a process sends on."""

    sent: int = 0
    runs: dict[str, OpenRun] = {}
    until: int = 0


@dataclass
class _Writing:
    """Keeps the cursor in the ledger. Raises `Conflict` when another process has changed it since."""

    ledger: Ledger
    revision: int

    def keep(self, cursor: _Cursor, *, until: int = 0) -> None:
        value = msgspec.json.encode(msgspec.structs.replace(cursor, until=until)).decode()
        self.revision = self.ledger.status_keys.put(_KEY, value, revision=self.revision)


@dataclass
class LineageOutbox:
    """Sends what is new in the log, one process at a time, at least once and always the same. Raises nothing that ends
    a run: what could not be sent is sent later.
    """

    ledger: Ledger
    receiver: Receiver
    translator: Translator
    clock: Clock
    progress: Progress
    _said: str = ""
    _rest: float = 0.0
    _again: float = 0.0
    _until: float = math.inf
    _turn: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def sending(self, background: Background) -> Iterator[None]:
        """Send from now on, and what is left at the end."""
        stop = background.every(_EVERY, self.send, _NAME)
        try:
            yield
        finally:
            self._until = self.clock.monotonic() + _AT_END
            stop()
            self.send()

    def send(self) -> bool:
        """Send what is new, unless the receiver was away a moment ago, or another process is at it."""
        with self._turn:
            if self.clock.monotonic() < self._again:
                return True
            try:
                self._send()
            except Conflict:
                pass  # Another process was quicker.
            except Transient as error:
                self._rest = min(max(self._rest * 2, _FIRST_REST), _LONGEST_REST)
                self._again = self.clock.monotonic() + self._rest
                self._say(f"{error}; what is not sent yet is sent later")
            except InstepError as error:
                self._say(str(error))
            except Exception as error:  # No run ends for its lineage.
                self._say(cleaned(f"unexpected {type(error).__name__}: {error}"))
            else:
                self._said, self._rest = "", 0.0
        return True

    def _send(self) -> None:
        row = self.ledger.status_keys.get(_KEY)
        cursor = msgspec.json.decode(row.value, type=_Cursor) if row else _Cursor()
        if cursor.sent >= self.ledger.events.last():
            return
        if cursor.until > self.ledger.now():
            return
        writing, due = _Writing(self.ledger, row.revision if row else 0), -math.inf
        try:
            while rows := self.ledger.events.rows(cursor.sent, _ROWS):
                for recorded in e.read(rows):
                    runs = dict(cursor.runs)
                    for event in self.translator.told(recorded, runs):
                        if (now := self.clock.monotonic()) > self._until:
                            return
                        if now >= due:
                            writing.keep(cursor, until=self.ledger.now() + _HOLD)
                            due = now + _KEEP
                        self._deliver(event)
                    cursor = _Cursor(recorded.sequence, runs)
        finally:
            writing.keep(cursor)

    def _deliver(self, event: Mapping[str, Any]) -> None:
        try:
            self.receiver.send(event)
        except Transient:
            raise
        except InstepError as error:  # It would be refused again: others are sent.
            self._say(str(error))

    def _say(self, said: str) -> None:
        """Report a problem once, until it is gone or another one comes."""
        if said != self._said:
            self._said = said
            self.progress.say(_NAME, said)
