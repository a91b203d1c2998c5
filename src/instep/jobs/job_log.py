"""Progress that is written into the log of its job, too. Implements `telemetry.progress.Progress`."""

from __future__ import annotations

from contextlib import suppress

from instep.domain.jobs import Phase
from instep.domain.texts import cleaned, hidden
from instep.domain.waves import Stage
from instep.errors import InstepError
from instep.ledger.job_log import SAID, SPARK
from instep.ledger.ledger import Ledger
from instep.telemetry.context import current_context
from instep.telemetry.progress import Progress


class LoggedProgress:
    """Passes everything on, and writes words and phases to the log of the job that the caller works on, if any.

    A line that the ledger does not take is lost: nothing fails for it.
    """

    def __init__(self, progress: Progress, ledger: Ledger) -> None:
        self._progress = progress
        self._ledger = ledger

    def listing(self, entity: str, found: int) -> None:
        self._progress.listing(entity, found)

    def begin(self, entity: str, total: int | None, unit: str) -> None:
        self._progress.begin(entity, total, unit)

    def advance(self, entity: str, units: int) -> None:
        self._progress.advance(entity, units)

    def stage(self, entity: str, stage: Stage) -> None:
        self._progress.stage(entity, stage)

    def phase(self, entity: str, phase: Phase) -> None:
        self._log(phase, phase.words)
        self._progress.phase(entity, phase)

    def say(self, entity: str, message: str) -> None:
        message = hidden(message)
        self._log(SAID, message)
        self._progress.say(entity, message)

    def end(self, entity: str, *, well: bool = True) -> None:
        self._progress.end(entity, well=well)

    def _log(self, kind: str, text: str) -> None:
        facts = current_context().facts
        if "job" in facts:
            add(self._ledger, kind, text)


def add(ledger: Ledger, kind: str, text: str) -> None:
    """Add a line to the log of the job that this thread works on."""
    facts = current_context().facts
    job, ref, worker = (str(facts.get(name, "")) for name in ("job", "ref", "worker"))
    with suppress(InstepError):
        ledger.job_log.add(job, kind, text if kind == SPARK else cleaned(text), ref=ref, worker_id=worker)
