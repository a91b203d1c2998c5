"""The money of one part's waves: reserved in the ledger before each, and paid in the end by what it was billed.

Tasks cannot ask the ledger, so a wave gets an allowance with which they do not exceed what is reserved: whatever dies,
and however many workers there are, a budget is not exceeded. What a wave has cost that died is not known; then all that
it has reserved counts as spent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from instep.domain.jobs import JobPart
from instep.domain.money import UNIT, Bill, Granted, Tariff, amount_text, next_month
from instep.domain.refs import own_name
from instep.domain.waves import TaskOutcome, Wave
from instep.entities.setup import EntitySetup
from instep.errors import Transient, UserError
from instep.ledger.ledger import Ledger
from instep.pipeline.documents.embed.embedder import probe
from instep.pipeline.documents.embed.meter import Meter
from instep.pipeline.engine.engine import PaidProgram, TableProgram, WaveProgram
from instep.telemetry.progress import Counters

#: Tokens that a document may have beyond its bytes: for prompts, titles and headings before its chunks.
_BESIDE: Final = 1_000
#: Milliseconds until slices are claimed again that wait for what others have reserved: for a wave, or for a batch.
HELD: Final = 2_000
BATCH_HELD: Final = 60_000


class Held(Transient):
    """Raised when other waves have reserved the rest of the budget. Some of it is free again when they have ended."""


class Budget:
    """The budget as one part's worker uses it: what its waves and batches may cost is reserved, and what they have cost
    is paid. `exact`: the waves are run in this process, so it is known what those cost that fail. `insist` repeats a
    call of the ledger during an outage.
    """

    def __init__(
        self,
        setup: EntitySetup,
        part: JobPart,
        ledger: Ledger,
        *,
        job_id: str,
        worker_id: str,
        exact: bool,
        counters: Counters,
        insist: Callable[[Callable[[], None]], None],
    ) -> None:
        self._setup = setup
        self._part = part
        self._ledger = ledger
        self._job_id = job_id
        self._worker = worker_id
        self._exact = exact
        self._counters = counters
        self._insist = insist
        self._grant: Granted | None = None
        #: Reservations of this wave that were too small.
        self._enlarged = 0
        #: Whether the last wave has failed, so that the embedder may be away.
        self._failed = False

    @contextmanager
    def paying(
        self, wave: Wave, program: WaveProgram | TableProgram
    ) -> Iterator[tuple[WaveProgram | TableProgram, list[TaskOutcome]]]:
        """The program with an allowance for the wave, and a list for its outcomes. It is paid in the end: when the
        wave has failed in other processes, as if all that is reserved were spent.
        """
        tariff = self._setup.tariff
        if tariff is None or not isinstance(program, PaidProgram):
            yield program, []
            return
        most = sum(each.size + _BESIDE for part in wave.slices for each in part.changes)
        grant = self.reserve(wave.id, tariff.wanted(most, self._enlarged, whole=not self._exact), tariff)
        meter = Meter(None if tariff.limit is None else tariff.tokens(grant.cost), wave.tasks)
        paid, done = program.metered(meter), list[TaskOutcome]()
        try:
            if self._failed and tariff.limit is not None:
                probe(paid.embedder)  # While it is away, waves would do nothing but lose what they reserve.
            self._failed = True
            yield paid, done
            self._failed = False
            self._enlarged = 0
        finally:
            bill = _bill(meter, None if self._failed else done)
            self.pay(wave.id, bill, 0 if bill is None else tariff.cost(bill.most))

    def reserve(self, name: str, wanted: int, tariff: Tariff) -> Granted:
        """Reserve an amount for a wave, or a batch, of this name."""
        self._grant = self._ledger.spending.reserve(
            own_name(self._part.ref.entity),
            job_id=self._job_id,
            worker_id=self._worker,
            wave=name,
            wanted=wanted,
            limit=tariff.limit,
        )
        return self._grant

    def pay(self, name: str, bill: Bill | None, cost: int) -> None:
        """Replace what was reserved for it by what it has cost; without a bill, by all that was reserved."""
        if bill is not None:
            self._counters.paid(self._part.ref.entity, bill.tokens, cost / UNIT)
        self._insist(partial(self._ledger.spending.pay, name, bill, cost))

    def enlarge(self) -> None:
        """Reserve more for the next try, after a wave that cost more than was reserved. Raises `Held` if others have
        what is left of the budget, `UserError` if it is spent.
        """
        grant, tariff = self._grant, self._setup.tariff
        assert grant, "a wave that was too dear had a reservation"
        assert tariff, "and a price"
        limit = tariff.limit or 0
        self._failed = False
        if not grant.short:
            self._enlarged += 1
            return
        if grant.held:
            raise Held(f"{amount_text(grant.held)} of the budget is reserved by other waves")
        spent = self._ledger.spending.this_month(own_name(self._part.ref.entity))
        raise UserError(
            f"the budget of {amount_text(limit)} for {grant.month} would be exceeded: {amount_text(spent)} is spent, "
            f"and the next texts may cost more than the {amount_text(max(0, limit - spent))} that is left",
            where=str(self._part.ref),
            hint=f"What is indexed stays. Raise `budget` under `embed` and run again, or run again from "
            f"{next_month(grant.month)} on: the job goes on where it has stopped.",
        )


def _bill(meter: Meter, done: Sequence[TaskOutcome] | None) -> Bill | None:
    """The bill of a wave; `done` is None if it has failed. None if nobody knows it."""
    if not meter.travelled:
        return meter.bill
    if done is None:
        return None
    found = Bill()
    for each in done:
        found = found.plus(each.bill)
    return found
