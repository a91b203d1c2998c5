"""A worker: this process, registered in the ledger, taking part in jobs until there is nothing left to do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial

from instep.domain.jobs import JobPart, JobState, OpenPart
from instep.domain.reasons import cleaned
from instep.domain.refs import PartitionRef
from instep.engine.choice import EngineChoice
from instep.errors import Away, Conflict, Fenced, InstepError, Transient, Unknown, UserError
from instep.ledger.port import Holder, Lease
from instep.service.begin import Beginner
from instep.service.context import Context
from instep.service.desk import Desk, Report
from instep.service.fulfil import Fulfiller
from instep.service.keeper import Keeper
from instep.service.latest import LatestSetups
from instep.service.meanwhile import Meanwhile
from instep.service.others import Others
from instep.service.patience import RESUMES, Circuit, backoff
from instep.service.planner import Planner
from instep.service.promotion import finish, strand
from instep.service.question import PlanOptions
from instep.service.recovery import fail_orphans, recover
from instep.service.registration import Kind, Registration
from instep.service.resting import Resting
from instep.service.settings import as_job_says
from instep.service.setup import EntitySetup
from instep.service.tracing import trace_of
from instep.service.upstream import PartKey, Setups, Waiting, all_upstream
from instep.service.watch import Watcher
from instep.service.wave import Outage, WaveRunner
from instep.telemetry import traces
from instep.telemetry.context import about, within

#: An idle worker looks for work at least every so many polls' time.
IDLE = 10
#: Taken over so often in a row without a wave in between: no other worker explains that.
FENCED_IN_A_ROW = 10


class Worker:
    """What this process has in hand under its registration, and what it does next.

    `choices` says which engine was chosen for a partition, if one was; `refused` counts the times that
    its writes were refused because others had taken over, `waiting` which parts wait for other partitions.
    """

    def __init__(self, setups: Setups, context: Context, kind: Kind) -> None:
        self._setups = setups
        self._context = context
        self._kind = kind
        self._circuits: dict[str, Circuit] = {}
        self._aside: dict[PartKey, float] = {}
        self._said: dict[PartitionRef, str] = {}
        self._shown: dict[PartKey, int] = {}
        self._fenced_in_a_row = 0
        self._pauses = backoff(context.random)
        self.choices: dict[PartitionRef, EngineChoice] = {}
        self.reports: dict[PartitionRef, Report] = {ref: Report() for ref in setups}
        self.refused = 0
        #: What a run could not do of a partition.
        self.problems: dict[PartitionRef, InstepError] = {}
        self.waiting = Waiting(context)
        self._swept: float | None = None
        self._register()

    def _register(self) -> None:
        """With nothing in hand, under a new id. If that fails, the old one stays, and is lost."""
        self._desks: dict[PartKey, Desk] = {}
        self._meanwhile: dict[PartKey, Meanwhile] = {}
        self._jobs: set[str] = set()
        #: Parts of which a reply was lost, or that could not be joined: perhaps nobody knows of their lease.
        self._unsure: set[PartKey] = set()
        self._registration = Registration(self._context, self._kind)

    @property
    def id(self) -> str:
        return self._registration.id

    @property
    def keeper(self) -> Keeper:
        return self._registration.keeper

    def end(self, *, stop: str | None = None) -> None:
        """Leave in good order: slices go back unspent. With `stop`, jobs in which nobody is left are STOPPED.
        In this order: who finds a lease must find it free, or its holder alive.
        """
        self._registration.silence()
        try:
            with suppress(Transient, Unknown):  # Then the proof of our end says it, or our silence.
                jobs = sorted(self._jobs)
                self._forget_what_ended()
                for job_id in jobs:
                    ended = job_id not in self._jobs
                    if ended or self._context.ledger.leave_job(job_id, self.id, stop=stop) is JobState.STOPPED:
                        self._settle(job_id)
                self._registration.retire()
        finally:
            self._registration.end()

    def _settle(self, job_id: str) -> None:
        """What was reserved for a job goes back if it was stopped; if not now, then when its time is over."""
        for (job, _), desk in self._desks.items():
            if job == job_id:
                with suppress(InstepError):
                    desk.setup.settle(desk.part, self._context.ledger, job_id)

    # Taking part.

    @property
    def parts(self) -> frozenset[PartKey]:
        """What it takes part in."""
        return frozenset(self._desks)

    def take(
        self, part: JobPart, lease: Lease, *, fenced: bool = False, sound: bool = False, leads: bool = False
    ) -> None:
        """Work on a part whose lease this worker has got for its job. `fenced` and `sound`: see `Desk`. `leads`: it
        made the job (see `Meanwhile`).
        """
        self._jobs.add(lease.job_id)
        setup = as_job_says(self._setups[part.ref], self._context.ledger, lease.job_id)
        if part.fresh:
            setup.create(part.physical)
        trace = trace_of(lease.job_id, self._context.ledger)
        key = lease.job_id, part.ref
        self._desks[key] = Desk(setup, part, lease, fenced, sound, traceparent=trace)
        # It outlives the desk, which is another one under another epoch.
        known = {each: found for each, found in self._meanwhile.items() if each in self._desks}
        made = Meanwhile(setup, self._context, lease.job_id, self.keeper, part.epoch if leads else None)
        self._meanwhile = {key: made} | known

    def join(self, job_id: str, part: JobPart) -> bool:
        """Take part in a job that others keep. False if its lease was lost meanwhile."""
        ledger, since, again = self._context.ledger, self._context.clock.monotonic(), job_id in self._jobs
        try:
            ledger.join_job(job_id, self.id)
            lease = ledger.renew_lease(Lease(part.ref, job_id, part.epoch, 0))
        except (Conflict, Fenced):
            if not again:  # A lease is free when nobody is left in its job.
                ledger.leave_job(job_id, self.id)
            return False
        self.keeper.keep(lease, since=since)
        self.take(part, lease)
        if not again:
            self._tell(part.ref, f"takes part in job {job_id[:8]}")
        return True

    def adopt(self, job_id: str, ref: PartitionRef) -> bool:
        """Take up a part that nobody keeps any more. False if somebody was quicker."""
        ledger, since = self._context.ledger, self._context.clock.monotonic()
        try:
            lease = ledger.acquire_lease(ref, job_id, self.id)
            if not isinstance(lease, Lease):
                return False
            part = ledger.adopt_part(lease)
        except (Conflict, Fenced):
            return False
        self.keeper.keep(lease, since=since)
        self.take(part, lease)
        self._tell(ref, f"takes up job {job_id[:8]}, in which nobody was left")
        return True

    # Working.

    def work(self, wanted: Collection[PartKey], begin: Callable[[Worker], bool], *, wait: float) -> None:
        """Until these parts have ended, or their jobs were stopped. `begin` makes jobs of what they wait for. What only
        others can go on with is waited for `wait` seconds without anything being done.
        """
        refs = {ref for _, ref in wanted}
        standstill, swept = Others(self._context, self.waiting, wait), False
        while True:
            upstream = all_upstream(self._setups, self.waiting.refs)
            found = self._look(refs | upstream)
            parts = [each for each in found if each.key in wanted and each.part.ref not in self.problems]
            if not parts:
                return
            others = [each for each in found if each.key not in wanted and each.part.ref in upstream]
            # What waits itself comes first: if all fail together, no part is left open.
            parts = [*(each for each in others if each.key in self.waiting), *parts, *others]
            for each in parts:
                if each.workers > 1:
                    self.show(each.job_id, each.part.ref)
            if self._serve_one(parts) or (self.waiting.refs and self._begin_upstream(begin, wanted)):
                continue
            busy = standstill.look(parts, self.id)
            if busy is None:
                swept = False
                self._context.clock.sleep(self._context.timing.poll / 1000)
            elif not swept:
                self.recover()  # Who has it may have died meanwhile, and been silent for long enough by now.
                swept = True
            else:
                for each in parts:
                    self._give_up(each.key, busy)

    def serve(self, begin: Callable[[Worker], bool], *, until_idle: bool, longest: float | None = None) -> None:
        """Whatever there is to do for our entities, for ever; or until nothing is. `begin` makes a job of what is
        wanted or has changed, if nothing is in work.

        The longer there was nothing, the less often it looks: idle servers should not keep a ledger busy. `longest`:
        seconds between two looks at most.
        """
        shortest = self._context.timing.poll / 1000
        pause, longest = shortest, IDLE * shortest if longest is None else max(longest, shortest)
        while True:
            parts = self._look(self._setups)
            if self._serve_one(parts) or self._begin(begin):
                pause = shortest
            elif until_idle and all(each.key in self.waiting for each in parts):
                return
            else:
                self._context.clock.sleep(pause)
                pause = min(1.5 * pause, longest)

    def _begin_upstream(self, begin: Callable[[Worker], bool], wanted: Collection[PartKey]) -> bool:
        """What a run's parts wait for. If a person has to mend that, these cannot be done."""
        try:
            return self._begin(begin)
        except UserError as error:
            left = [each for each in wanted if each in self.waiting]
            if not left:
                raise
            for key in left:
                self._give_up(key, error)
            return True

    def _begin(self, begin: Callable[[Worker], bool]) -> bool:
        try:
            return begin(self)
        except (Conflict, Fenced, Transient, Unknown):
            return False  # The next look finds out why.

    def _look(self, refs: Collection[PartitionRef]) -> list[OpenPart]:
        """What is to be done, after recovery if that is due. Waits while the ledger is down."""
        clock, timing = self._context.clock, self._context.timing
        began, tried = clock.monotonic(), 0
        while True:
            try:
                if self.keeper.lost:
                    self._begin_anew()
                self._recover_if_due(refs)
                return self._context.ledger.open_parts(refs)
            except (Transient, Unknown) as error:
                tried += 1
                if self._kind == "run" and clock.monotonic() - began > timing.lease / 1000:
                    raise Away(str(error), hint=RESUMES) from error
                if tried == 1:
                    self._context.progress.say("ledger", f"{error}; trying again")
                clock.sleep(self._pauses.pause(tried))

    def recover(self) -> None:
        """Before the first look, which does so too unless it is done."""
        recover(self._context)
        self._swept = self._context.clock.monotonic()

    def _recover_if_due(self, refs: Collection[PartitionRef]) -> None:
        now, context = self._context.clock.monotonic(), self._context
        if self._swept is not None and now - self._swept < context.timing.sweep / 1000:
            return
        recover(context)
        self._forget_what_ended()
        if isinstance(self._setups, LatestSetups):
            self._setups.renew()
        if self._kind == "worker":
            fail_orphans(context.ledger.open_parts(refs), self._setups, context, self.id)
        self._swept = now

    def _serve_one(self, parts: Sequence[OpenPart]) -> bool:
        """Work on the first of these parts that needs something now."""
        return any(self._serve(each) for each in parts)

    def _serve(self, each: OpenPart) -> bool:
        key = each.key
        try:
            with about(worker=self.id, job=each.job_id, ref=str(each.part.ref), instance=each.part.instance):
                done = self._advance(each)
        except Fenced as error:
            self._fenced(key, error)
            return True
        except (Conflict, Unknown, Transient) as error:
            if isinstance(error, Unknown):
                self._unsure.add(key)
            if isinstance(error, Outage):
                self._outage(each, error)
            return False
        except UserError as error:
            if self._is_over(key):
                self._forget(key)
            elif self._kind == "run":
                self._give_up(key, error)
            elif isinstance(error, Away):
                self._outage(each, error)
            else:
                self._set_aside(key, error)
            return False
        if done:
            self._fenced_in_a_row = 0
        return done

    def _advance(self, each: OpenPart) -> bool:
        """What the part needs next: a wave, or to be finished. False if it needs nothing from us now."""
        ledger, ref = self._context.ledger, each.part.ref
        if each.job_state is JobState.STOPPING:
            ledger.sweep()  # It ends as soon as nothing is in work.
            self._settle(each.job_id)
            return False
        desk = self._desk(each)
        if desk is None or (each.processing and not each.pending):
            return False
        key = each.key
        failed = None if desk.ready else self.waiting.look(key, desk.part)
        if failed and each.pending:  # Else it ends as other parts do, by one worker that is elected.
            strand(desk.setup, desk.lease, self._context, worker_id=self.id, keeper=self.keeper, error=failed)
            self._tell(ref, failed)
            self._forget(key)
            return True
        desk.ready = key not in self.waiting
        if not desk.ready:
            return False
        with within(desk.traceparent):
            return self._go_on(each, desk)

    def _go_on(self, each: OpenPart, desk: Desk) -> bool:
        ledger, ref = self._context.ledger, each.part.ref
        if each.job_state is JobState.READY:
            ledger.start_job(each.job_id)
        if each.pending:
            self._meanwhile[each.key].keep_served(desk.part)
            return self._circuit(desk).wait() <= 0 and self._runner(each, desk).run(
                each, partial(self._progress, each.key)
            )
        notes = finish(
            desk.setup,
            desk.lease,
            self._context,
            job_id=each.job_id,
            worker_id=self.id,
            keeper=self.keeper,
            meanwhile=self._meanwhile[each.key],
            sound=desk.sound,
        )
        if notes is None:
            return False
        self.reports[ref].notes += notes
        done = ledger.job(each.job_id) if self._kind == "worker" else None
        counts = f": {done.part(ref).counts}" if done else ""
        self._tell(ref, f"its part of job {each.job_id[:8]} is finished{counts}")
        self._forget(each.key)
        return True

    def _desk(self, each: OpenPart) -> Desk | None:
        """The part as we have it; first get it, if we have not or others took it up under a new epoch."""
        key = each.key
        if key in self._unsure and self._regain(each):
            return self._desks[key]
        desk = self._desks.get(key)
        if desk and each.held and desk.part.epoch == each.part.epoch:
            return desk
        self._forget(key)
        if self._aside.get(key, 0.0) > self._context.clock.monotonic():
            return None
        if self._setups[each.part.ref].misfit(each.part):
            return None
        if each.held and not self.join(each.job_id, each.part):
            self._unsure.add(key)  # If it is still so at the next look, who had got the new lease has died with it.
        elif not each.held:
            self.adopt(each.job_id, each.part.ref)
        return self._desks.get(key)

    def _regain(self, each: OpenPart) -> bool:
        """Whether the part was left between a new lease and its adoption, as it is when the reply to the lease is lost,
        or who got it has died. Then it is got by one more epoch: who else might have that lease is refused by then.
        """
        ledger, ref, since = self._context.ledger, each.part.ref, self._context.clock.monotonic()
        held = ledger.acquire_lease(ref, each.job_id, self.id)
        self._unsure.discard(each.key)
        if isinstance(held, Holder):
            if held.job_id != each.job_id or held.epoch <= each.part.epoch:
                return False
            torn = Lease(ref, held.job_id, held.epoch, held.expires_at)
            self._unsure.add(each.key)
            ledger.join_job(torn.job_id, self.id)
            held = ledger.transfer_lease(torn, torn.job_id)
        self._unsure.add(each.key)
        part = ledger.adopt_part(held)
        self._unsure.discard(each.key)
        self._forget(each.key)
        self.keeper.keep(held, since=since)
        self.take(part, held)
        return True

    def _runner(self, each: OpenPart, desk: Desk) -> WaveRunner:
        if desk.runner is None:
            ref = each.part.ref
            choice = self.choices.get(ref) or self._context.choose(desk.setup, each.head * each.pending)
            engine = self._context.engine(choice)
            engine.ready()  # Before anything is claimed.
            self.reports[ref].engine = engine.name
            desk.runner = WaveRunner(
                desk.setup,
                desk.part,
                base=desk.part.base if desk.fenced else None,
                job_id=each.job_id,
                worker_id=self.id,
                engine=engine,
                context=self._context,
                keeper=self.keeper,
                circuit=self._circuit(desk),
                notes=self.reports[ref].notes,
            )
        return desk.runner

    def _circuit(self, desk: Desk) -> Circuit:
        name = desk.setup.target_name
        if name not in self._circuits:
            self._circuits[name] = Circuit(self._context.clock)
        return self._circuits[name]

    # When it does not go well.

    def _fenced(self, key: PartKey, error: Fenced) -> None:
        self.refused += 1
        self._fenced_in_a_row += 1
        _, ref = key
        self._context.counters.refused(ref.entity)
        self._context.progress.say(ref.label, f"let go of what others took over: {error}")
        self._forget(key)
        if self._fenced_in_a_row >= FENCED_IN_A_ROW:
            self._fenced_in_a_row = 0
            problem = UserError(
                f"{ref} was taken over by another worker: {error}",
                hint="Nothing is lost: the other one goes on; see `instep workers`. If there is none, the target is "
                "newer than the ledger (was that replaced?): move the target's folder away and build anew.",
            )
            if self._kind == "run":
                self._give_up(key, problem)
            else:
                self._set_aside(key, problem)

    def _is_over(self, key: PartKey) -> bool:
        """Whether others have ended the part: then what we miss in the target is no error."""
        with suppress(Transient, Unknown):
            job = self._context.ledger.job(key[0])
            return job is None or job.part(key[1]).state is not None
        return False

    def begun_anew(self) -> bool:
        """Ask the ledger whether others have taken this worker for dead; if so, it goes on as a new one."""
        self.keeper.beat()
        if not self.keeper.lost:
            return False
        self._begin_anew()
        return True

    def _begin_anew(self) -> None:
        """Others have buried this worker: it goes on as a new one, with nothing in hand."""
        self._context.progress.say("workers", f"worker {self.id[:8]} was silent for too long and begins anew")
        self._registration.bury()
        self._register()

    def _outage(self, each: OpenPart, error: Outage | Away) -> None:
        """A run says so and ends; a worker waits, and stops the job when it takes too long."""
        ref = each.part.ref
        if self._kind == "run":
            away = Away(f"{ref}: {error}", hint=f"It was tried for half a minute. {RESUMES}")
            self._give_up(each.key, away)
            return
        self._context.progress.say(ref.label, f"waiting: {error}")
        desk = self._desks.get(each.key)
        if desk and isinstance(error, Away):  # A wave has told the circuit itself.
            self._circuit(desk).failed()
        if desk and self._circuit(desk).down_for() > self._context.timing.orphan / 1000:
            self._context.ledger.request_stop(each.job_id, f"{ref}: {error}")

    def _give_up(self, key: PartKey, error: UserError) -> None:
        """A run goes on with its other parts; this one it leaves for the next run. What waits for it is left too."""
        _, ref = key
        self.problems[ref] = error
        for each in [each for each in self._desks if ref in all_upstream(self._setups, [each[1]])]:
            self.problems.setdefault(each[1], UserError(f"{each[1]} waits for {ref}: {error.what}", hint=error.hint))
            self._forget(each)
        self._forget(key)

    def _set_aside(self, key: PartKey, error: UserError) -> None:
        """This worker cannot work on this part for now; others may. If there are none, the job stops, saying why."""
        job_id, ref = key
        if self._said.get(ref) != str(error):
            self._said[ref] = str(error)
            self._context.progress.say(ref.label, str(error))
        self._aside[key] = self._context.clock.monotonic() + self._context.timing.sweep / 1000
        for other in [each for each in self._desks if each[0] == job_id]:
            self._forget(other)
        self._jobs.discard(job_id)
        with suppress(Transient, Unknown):
            self._context.ledger.leave_job(job_id, self.id, stop=cleaned(str(error)))

    def _forget(self, key: PartKey) -> None:
        self._desks.pop(key, None)
        self.waiting.forget(key)
        self.keeper.drop(key[1])

    # What is shown.

    def _forget_what_ended(self) -> None:
        """A worker lives for months: it keeps nothing of jobs that it takes no part in any more."""
        mine = next((each for each in self._context.ledger.workers() if each.id == self.id), None)
        if mine is not None:
            self._jobs &= set(mine.job_ids)
        now = self._context.clock.monotonic()
        self._aside = {key: until for key, until in self._aside.items() if until > now}
        self._shown = {key: units for key, units in self._shown.items() if key[0] in self._jobs}
        self._unsure = {key for key in self._unsure if key[0] in self._jobs}
        if self._kind == "worker":  # They have been told.
            for report in self.reports.values():
                report.notes.clear()

    def _tell(self, ref: PartitionRef, message: str) -> None:
        """A run shows bars, and says what it joins and resumes where it decides so."""
        if self._kind == "worker":
            self._context.progress.say(ref.label, message)

    def _progress(self, key: PartKey, units: int) -> None:
        self._shown[key] = self._shown.get(key, 0) + units
        self._context.progress.advance(key[1].label, units)

    def show(self, job_id: str, ref: PartitionRef) -> None:
        """Move the bar by what others have done, or what was done before we came."""
        job = self._context.ledger.job(job_id)
        done = job.part(ref).counts.read if job else 0
        missing = done - self._shown.get((job_id, ref), 0)
        if missing > 0:
            self._progress((job_id, ref), missing)


def serve(
    setups: Sequence[EntitySetup],
    context: Context,
    *,
    until_idle: bool = False,
    watch: float | None = None,
    options: PlanOptions | None = None,
    anew: Callable[[], Sequence[EntitySetup]] | None = None,
) -> None:
    """Be a worker for these entities: take part in any job on them, and make jobs of what is wanted, until
    interrupted (or idle). `watch`: also of what has changed, looking every so many seconds; with `options`. `anew`
    makes the setups again, for a worker that lives longer than what they tell is true.
    """
    traces.enabled()  # Says now, and not in mid-work, that they cannot be sent.
    latest = LatestSetups(setups, anew, partial(context.progress.say, "worker"))
    planner = Planner(latest, context, options or PlanOptions(), {})
    resting = Resting(context)
    beginners: list[Beginner] = [Fulfiller(planner, resting)]
    if watch is not None:
        beginners.append(Watcher(planner, watch, resting))
    worker = Worker(planner.setups, context, "worker")
    try:
        names = ", ".join(setup.ref.entity for setup in setups)
        context.progress.say("worker", f"{worker.id[:8]} is ready for jobs on {names}")
        worker.serve(lambda ours: any(each.begin(ours) for each in beginners), until_idle=until_idle, longest=watch)
    finally:
        worker.end()
