"""Decide when a run has waited long enough for other workers."""

from __future__ import annotations

from collections.abc import Sequence

from instep.domain.jobs import JobState, OpenPart
from instep.domain.texts import duration_text
from instep.jobs.acquisition import Busy, held_text
from instep.ledger.leases import Holder
from instep.planning.context import Context
from instep.planning.upstream import Waiting


class StalledWorkers:
    """Watches the other workers in a worker's jobs: they may be suspended, or have died on another host.

    `longest`: seconds to wait without any progress.
    """

    def __init__(self, context: Context, waiting: Waiting, longest: float) -> None:
        self._context = context
        self._waiting = waiting
        self._longest = longest
        self._seen: object = None
        self._since = 0.0

    def look(self, parts: Sequence[OpenPart], worker_id: str) -> Busy | None:
        """The reason to stop waiting for these parts, none of which can be worked on now; None to go on waiting, or if
        no other worker has them.
        """
        now, ours = self._context.clock.monotonic(), [each for each in parts if not self._on_others(each)]
        seen = None if ours else {(each.key, each.job_state, each.part.epoch, *_open(each)) for each in parts}
        if seen is None or seen != self._seen:
            self._seen, self._since = seen, now
            return None
        if now - self._since < self._longest:
            return None
        holder = next(filter(None, (self._holder(each, worker_id) for each in parts)), None)
        if holder is None:
            return None
        silence = duration_text(self._context.timing.stale)
        return Busy(
            f"{held_text(holder)}, and nothing was done in it for {round(now - self._since)} s",
            hint="Wait for it, or run again with a longer --wait. If that process is stopped, end it: what it has in "
            f"work is free then, or {silence} after its last heartbeat at the latest.",
        )

    def _on_others(self, part: OpenPart) -> bool:
        """Whether the next step is another worker's. If the part waits for its upstream, the upstream counts."""
        return part.key in self._waiting or part.job_state is JobState.STOPPING or not part.pending

    def _holder(self, part: OpenPart, worker_id: str) -> Holder | None:
        if part.key in self._waiting:
            return None
        workers = self._context.ledger.workers.all()
        found = tuple(each for each in workers if each.id != worker_id and part.job_id in each.job_ids)
        return Holder(part.part.ref, part.job_id, part.part.epoch, 0, 0, found) if found else None


def _open(part: OpenPart) -> tuple[int, int]:
    return part.pending, part.processing
