"""Claims of the slices of one part by one worker: taken in the ledger, given back to it, completed there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from instep.domain.counts import Counts
from instep.domain.jobs import Claim, JobPart, OpenPart
from instep.domain.planning import Pace, fair_share, is_giant, most_claims, too_long, wave_work
from instep.domain.retries import Backoff
from instep.domain.texts import cleaned
from instep.domain.waves import SliceOutcome
from instep.entities.setup import EntitySetup
from instep.errors import Fenced, UserError
from instep.jobs.heartbeat import Heartbeat
from instep.jobs.retry import MEND, T, with_retries
from instep.planning.context import Context
from instep.telemetry.context import Fact

#: Times the usual number of slices may be claimed for a wave that is larger than its time goal asks.
_LARGER: Final = 2


class SliceClaims:
    """Claims slices of one part for one worker. `pauses`: between tries of a ledger call during an outage. `inline`:
    waves are run in this process.
    """

    def __init__(
        self,
        setup: EntitySetup,
        part: JobPart,
        *,
        job_id: str,
        worker_id: str,
        context: Context,
        heartbeat: Heartbeat,
        pauses: Backoff,
        inline: bool,
    ) -> None:
        self._setup = setup
        self._part = part
        self._job_id = job_id
        self._worker = worker_id
        self._context = context
        self._ledger = context.ledger
        self._heartbeat = heartbeat
        self._pauses = pauses
        self._inline = inline
        #: Rank of the last slice that was claimed.
        self._after = 0

    def claim(self, open_part: OpenPart, pace: Pace) -> list[Claim]:
        """Claim as many slices as the time goal of a wave and the other workers' share allow."""
        self._heartbeat.require(self._part.ref)
        usual, least = wave_work(pace), self._setup.least_wave(inline=self._inline)
        most = most_claims(self._setup.most_claims, pace) * (_LARGER if least > usual else 1)
        claims = self._ledger.slices.claim(
            self._job_id,
            self._part.ref,
            self._worker,
            work=max(usual, least),
            limit=min(most, fair_share(open_part.pending, open_part.workers)),
            after=self._after,
            together=self._setup.scanned,
        )
        self._after = max((claim.rank for claim in claims), default=0)
        return claims

    def split_long(self, claims: Sequence[Claim], pace: Pace, *, idle: bool) -> list[Claim]:
        """Split slices that would keep other workers waiting at the end. Only slices at their first attempt: those that
        may be in the target already are looked up as a whole.
        """
        if self._setup.scanned:
            return list(claims)
        return [
            claim
            for claim in claims
            if claim.fence > 1
            or not too_long(claim.work, claim.units, pace, idle=idle)
            or not self._ledger.slices.split(claim, self._worker)
        ]

    def fail_worn_out(self, claims: Sequence[Claim]) -> list[Claim]:
        """Fail slices without attempts left. They are not in the target, and cannot get there: earlier holders are
        fenced.
        """
        worn_out = [claim for claim in claims if claim.worn_out]
        if worn_out and (stuck := self.give_back(worn_out, None, spent=True)):
            raise UserError(stuck, hint=MEND)
        return [claim for claim in claims if not claim.worn_out]

    def demand(self, claims: Sequence[Claim]) -> None:
        """Check lease and claims for the last time before the commit. Anything later is fenced by the target."""
        self._heartbeat.require(self._part.ref)
        if not self.insist(partial(self._ledger.slices.holds, claims, self._worker)):
            raise Fenced(f"slices of job {self._job_id} were taken over before their commit")

    def complete(self, outcomes: Sequence[SliceOutcome]) -> None:
        """Record slices that the target has committed."""
        if outcomes:
            self.insist(
                partial(self._ledger.slices.complete, self._part, self._worker, outcomes, job_id=self._job_id),
            )
            if lost := sum(each.lost for each in outcomes):
                self._ledger.losses.count(self._part, self._setup.loss(lost), job_id=self._job_id)
            counts = sum((each.counts for each in outcomes), Counts())
            self._context.counters.done(self._part.ref.entity, len(outcomes), counts)

    def give_back(
        self, claims: Sequence[Claim], error: str | None, *, spent: bool = False, delay: int = 0
    ) -> str | None:
        """Give slices back. `spent`: it costs them an attempt. Returns why the part cannot go on, if so."""
        return self.insist(
            partial(self._ledger.slices.give_back, claims, self._worker, error=error, spent=spent, delay=delay)
        )

    def reset_attempts(self) -> None:
        self.insist(partial(self._ledger.slices.reset_attempts, self._part, job_id=self._job_id))

    def insist(self, call: Callable[[], T]) -> T:
        """Retry a ledger call during an outage, as long as the lease lasts: results must not be lost."""
        require = partial(self._heartbeat.require, self._part.ref)
        return with_retries(
            call, clock=self._context.clock, pauses=self._pauses, allowed=require, waits=self._say_waiting
        )

    def _say_waiting(self, why: str) -> None:
        self._context.progress.say(self._part.ref.label, f"waiting: {cleaned(why)}")


def without_giants(claims: Sequence[Claim]) -> list[list[Claim]]:
    """One wave for each giant document, one for the rest: a wave is durable only as a whole."""
    giants = [[claim] for claim in claims if is_giant(claim.units, claim.work)]
    return [[claim for claim in claims if [claim] not in giants], *giants]


def facts(claims: Sequence[Claim]) -> dict[str, Fact]:
    """Fields of these slices for log lines and spans."""
    if len(claims) == 1:
        return {"slice": claims[0].slice_id}
    return {"slices": len(claims)}
