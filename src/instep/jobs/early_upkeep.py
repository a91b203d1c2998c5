"""Upkeep of an index that begins while its last wave is recorded: one is the target's work, the other the ledger's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from instep.domain.clock import Background
from instep.domain.waves import SliceOutcome
from instep.targets.document_target import IndexTarget

#: So many documents take their time to be recorded.
DOCUMENTS: Final = 20_000


class EarlyUpkeep:
    """Looks after the index in a thread while the ledger records the last wave. The index is looked after once more at
    the end of the job, when there is little left to do; so nothing depends on this one.
    """

    def __init__(self, background: Background) -> None:
        self._background = background
        self._ended: Callable[[], None] | None = None

    def begin(self, target: IndexTarget, physical: str, outcomes: Sequence[SliceOutcome]) -> None:
        """Begin, if these are enough to take their time to be recorded."""
        if sum(len(each.entries) for each in outcomes) < DOCUMENTS:
            return
        self.end()
        self._ended = self._background.beside(partial(target.maintain, physical), "upkeep")

    def end(self) -> None:
        """Wait for it. What went wrong is said by the upkeep at the end of the job, also if it is no error of ours."""
        ended, self._ended = self._ended, None
        if ended is not None:
            with suppress(Exception):
                ended()
