"""Report the status of partitions: one status key each, written by the worker that runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from instep.bus.bus import StatusEntry, StatusKeys
from instep.domain.refs import PartitionRef
from instep.domain.status import IndexState, StatusKeyError, status_key
from instep.domain.texts import cleaned
from instep.errors import Conflict, InstepError
from instep.telemetry.progress import Progress

#: So often others may change a key between our look and our write.
_TRIES: Final = 5
#: How a run ends; the other states are said on its way.
_ENDS: Final = (IndexState.INDEXED, IndexState.ERROR)


@dataclass(frozen=True, slots=True)
class StatusReporter:
    """Writes status keys; may be shared by threads. It raises nothing: a run does not fail because its status could not
    be stored. `keys` opens the bus, if that is not done yet; `stop` has it wait for no server that is away. `unsent`
    are the partitions whose last status could not be written.
    """

    keys: Callable[[], StatusKeys]
    progress: Progress
    stop: Callable[[], None] = lambda: None
    unsent: set[PartitionRef] = field(default_factory=set)

    def tell(self, ref: PartitionRef, state: IndexState, *, epoch: int, **details: Any) -> str | None:
        """Set the partition's key, unless a newer run has; returns a note when that failed.

        `epoch` is that of the lease under which the partition is worked on: a later one is not overwritten, and in one
        epoch nothing that was on the way comes after how it ended. Details without a value are left out.
        """
        key = status_key(ref)
        try:
            self._put(key, state, {"state": state.value, "epoch": epoch, **_worded(details)})
        except (InstepError, StatusKeyError) as error:
            self.unsent.add(ref)
            note = f"{key} could not be written: {cleaned(str(error))}"
            self.progress.say(ref.label, note)
            return note
        self.unsent.discard(ref)
        return None

    def _put(self, key: str, state: IndexState, value: Mapping[str, Any]) -> None:
        keys = self.keys()
        for left in reversed(range(_TRIES)):
            before = keys.get(key)
            if before is not None and _is_newer(before, state, value["epoch"]):
                return
            try:
                keys.put(key, value, revision=0 if before is None else before.revision)
            except Conflict:
                if not left:
                    raise
            else:
                return


def _is_newer(entry: StatusEntry, state: IndexState, epoch: int) -> bool:
    """Whether what is said there came after this. What cannot be read, or says no epoch, is of no run of ours."""
    there = entry.value or {}
    told = there.get("epoch")
    if not isinstance(told, int):
        return False
    return told > epoch or (told == epoch and there.get("state") in _ENDS and state not in _ENDS)


def _worded(details: Mapping[str, Any]) -> dict[str, Any]:
    """Reasons are stored as everywhere: short, without secrets."""
    told = {name: value for name, value in details.items() if value is not None}
    return told | ({"error": cleaned(str(told["error"]))} if "error" in told else {})
