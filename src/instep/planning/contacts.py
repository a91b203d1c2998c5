"""Notes of the last time at which a target was asked whether this ledger is its newest, and its index served: a small
file for each partition and generation.

A ledger that was replaced by an older one, together with its source, finds nothing to do, and its target alone knows
better. To ask it takes longer than to find that nothing has changed, so it is asked at once where something says that a
file was brought back (the ledger knows fewer epochs than the note, or the note was written at another time than it
says, or the index or an alias is gone from its folder), and else once an hour. A note that is lost or cannot be written
costs a question. Targets on servers are quick to ask, and nothing here tells whether an index was dropped there: each
process asks them, and one that goes on asks again after a minute.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol

from instep.domain.refs import PartitionRef

_GOOD_FOR: Final = 3_600.0
#: The same of what this process knows of a server.
_LATELY: Final = 60.0
#: Seconds between the two writes of a note, at most; and between the clock and that of the file system.
_WRITTEN_IN, _APART = 0.5, 60.0


class Contacts(Protocol):
    def known(self, ref: PartitionRef, generation: str, physical: str, aliases: Sequence[str]) -> int | None:
        """The newest epoch that the target of this index had seen; None if it is to be asked again."""

    def note(self, ref: PartitionRef, generation: str, physical: str, epoch: int) -> None:
        """Note that the index is there and served, and that its target has seen no newer epoch."""

    def put_off(self, ref: PartitionRef, physical: str) -> None:
        """Note that the target of this index is away: to wait for it again and again would hold up what polls."""


class Unasked:
    """No target is asked."""

    def known(self, ref: PartitionRef, generation: str, physical: str, aliases: Sequence[str]) -> int | None:
        return 0

    def note(self, ref: PartitionRef, generation: str, physical: str, epoch: int) -> None:
        return None

    def put_off(self, ref: PartitionRef, physical: str) -> None:
        return None


@dataclass(frozen=True)
class ContactFiles:
    """Implements `Contacts`. `ledger` is its id: a folder may be that of several, one after the other. `kept`: notes
    are written. `there`: whether a partition's index and these aliases are in their folder, as far as files tell; None
    if they are on a server.
    """

    folder: Path
    ledger: str
    there: Callable[[PartitionRef, str, Sequence[str]], bool | None]
    kept: bool = True
    #: Of indexes on servers: when each was asked for, by the monotonic clock, and the epoch. Partitions that share one
    #: have epochs of their own, and the index of an entity may have the same name in each of its targets.
    _asked: dict[tuple[PartitionRef, str], tuple[float, int]] = field(default_factory=dict)

    def known(self, ref: PartitionRef, generation: str, physical: str, aliases: Sequence[str]) -> int | None:
        try:
            there = self.there(ref, physical, aliases)
        except OSError:
            return None  # Its target is asked, and says why it cannot be looked at.
        if there is None:
            asked, epoch = self._asked.get((ref, physical), (-math.inf, 0))
            return epoch if time.monotonic() - asked < _LATELY else None
        if not there:
            return None
        path = self._path(ref, generation)
        try:
            file = path.stat()
            noted = json.loads(path.read_bytes())
            known, at, number = int(noted["epoch"]), float(noted["at"]), int(noted["file"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        # No copy has the time at which its data was written last.
        same = number == file.st_ino and 0 <= file.st_ctime - at < _WRITTEN_IN
        return known if same and -_APART < time.time() - at < _GOOD_FOR else None

    def note(self, ref: PartitionRef, generation: str, physical: str, epoch: int) -> None:
        if self.there(ref, physical, ()) is None:
            self._asked[ref, physical] = time.monotonic(), epoch
            return
        if not self.kept:
            return
        path = self._path(ref, generation)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"{}")
            file = path.stat()  # By the clock of the file system, which may be another host's.
            path.write_text(json.dumps({"epoch": epoch, "at": file.st_ctime, "file": file.st_ino}))

    def put_off(self, ref: PartitionRef, physical: str) -> None:
        self._asked[ref, physical] = time.monotonic(), 0

    def _path(self, ref: PartitionRef, generation: str) -> Path:
        return self.folder / sha256("\0".join((self.ledger, str(ref), generation)).encode()).hexdigest()[:32]
