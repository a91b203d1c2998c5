"""Write status keys that are behind the ledger, since the bus was away or a worker died before it could write them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from instep.bus.bus import StatusEntry
from instep.domain.jobs import ended_badly
from instep.domain.refs import PartitionRef
from instep.domain.status import IndexState, status_key
from instep.entities.generations import generation_of
from instep.errors import InstepError
from instep.planning.context import Context


class MissingStatus:
    """Looks at the keys of all these entities once, and from then on at those that this process could not write."""

    def __init__(self, entities: Collection[str], context: Context) -> None:
        self._entities = entities
        self._context = context
        self._is_first = True
        self._is_stopped = False

    def stop(self) -> None:
        """Write nothing any more: the bus is about to be closed."""
        self._is_stopped = True

    def write(self) -> bool:
        """Write the keys that are behind. An outage is left to the next call. Whether to call again."""
        if self._is_stopped:
            return False
        reporter = self._context.status_reporter
        try:
            if self._is_first or reporter.unsent:
                refs = self._known() if self._is_first else [*reporter.unsent]
                there = {each.key: each for each in reporter.keys().under("status")}
                self._write(refs, there)
                self._is_first = False
        except InstepError:
            pass  # The bus or the ledger is away, as the worker says itself.
        except RuntimeError:
            if not self._is_stopped:
                raise
        return not self._is_stopped

    def _known(self) -> list[PartitionRef]:
        checkpoints = self._context.ledger.checkpoints
        return list(dict.fromkeys(each.ref for name in self._entities for each in checkpoints.of_entity(name)))

    def _write(self, refs: Iterable[PartitionRef], there: dict[str, StatusEntry]) -> None:
        ledger, reporter = self._context.ledger, self._context.status_reporter
        for ref in refs:
            job = ledger.jobs.latest(ref, generation_of(ledger, ref, None))
            status = job.part(ref) if job else None
            if job is None or status is None or status.state is None:
                reporter.unsent.discard(ref)  # Its worker says how it ends.
                continue
            epoch, error = status.part.epoch, status.error or ended_badly(job, status)
            state = IndexState.ERROR if error else IndexState.INDEXED
            entry = there.get(status_key(ref))
            if entry is not None and entry.value is not None and _is_up_to_date(entry.value, state, epoch):
                reporter.unsent.discard(ref)
                continue
            rows = None if error else status.counts.read
            if reporter.tell(ref, state, epoch=epoch, job=job.id, rows=rows, error=error):
                return  # The bus is away again.


def _is_up_to_date(value: object, state: IndexState, epoch: int) -> bool:
    """Whether a key says this already, or what a newer run says."""
    if not isinstance(value, dict) or not isinstance(told := value.get("epoch"), int):
        return False
    return told > epoch or (told == epoch and value.get("state") == state.value)
