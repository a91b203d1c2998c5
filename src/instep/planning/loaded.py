"""Code and settings as this process has loaded them. It leaves alone what was built by newer ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from instep.domain.fingerprint import ROWS
from instep.domain.instances import Instance
from instep.domain.refs import PartitionRef
from instep.errors import Outdated
from instep.ledger.ledger import Ledger

#: Key in a job's configuration: when the process that made it had loaded its code and settings, by the ledger's clock.
LOADED: Final = "loaded"


def _unchanged(_: PartitionRef) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """The code and settings of this process: since when it has them, and what it has built with them.

    `at`: that moment, by the ledger's clock (ms). `changed`: the functions of a partition whose code on disk is no
    longer what was loaded. `own_jobs`: the jobs by which this process has built something.
    """

    at: int
    changed: Callable[[PartitionRef], Sequence[str]] = _unchanged
    own_jobs: set[str] = field(default_factory=set)

    def demand_newest(
        self, ref: PartitionRef, differs: Collection[str], built: Instance | None, since: int | None
    ) -> None:
        """Check that a build whose fingerprint differs in these parts may be replaced. Raises `Outdated` if another
        process made it that had loaded its code and settings after this one (`since`, see `loaded_for`), or if the code
        of its functions has changed since.
        """
        if built is None or built.job in self.own_jobs or not set(differs) - {ROWS}:
            return
        if since is not None and since > self.at:
            why = f"newer code or settings than this process has loaded, at {_time(self.at)}"
        elif functions := self.changed(ref):
            why = f"other code than this process has loaded, and that of {functions[0]} has changed since"
        else:
            return
        raise Outdated(
            f"it was built by {why}",
            where=str(ref),
            hint="Restart this process: it changes nothing of that index as long as its own code or settings differ.",
        )


def loaded_for(built: Instance | None, ledger: Ledger) -> int | None:
    """The time at which the process that made a build had loaded its code and settings; when it was begun where that is
    not written down.
    """
    if built is None:
        return None
    job = ledger.jobs.get(built.job) if built.job else None
    found = job.configuration.get(LOADED) if job else None
    return found if isinstance(found, int) else built.started_at


def _time(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1_000, UTC):%Y-%m-%d %H:%M} UTC"
