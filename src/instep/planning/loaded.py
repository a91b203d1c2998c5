"""Code and settings as this process has loaded them. It leaves alone what was built by newer ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from instep.domain.fingerprint import ROWS
from instep.domain.instances import Instance
from instep.domain.refs import PartitionRef
from instep.errors import Outdated


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

    def demand_newest(self, ref: PartitionRef, differs: Collection[str], built: Instance | None) -> None:
        """Check that a build whose fingerprint differs in these parts may be replaced. Raises `Outdated` if another
        process began it after this one had loaded its code and settings, or if the code of its functions has changed
        since.
        """
        if built is None or built.job in self.own_jobs or not set(differs) - {ROWS}:
            return
        if built.started_at is not None and built.started_at > self.at:
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


def _time(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1_000, UTC):%Y-%m-%d %H:%M} UTC"
