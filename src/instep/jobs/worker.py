"""A worker: a registered process that takes part in jobs until there is nothing left to do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial

from instep.domain.jobs import JobState, OpenPart, ended_badly
from instep.domain.refs import PartitionRef
from instep.domain.texts import clause, cleaned
from instep.errors import Away, Conflict, Fenced, InstepError, Transient, Unknown, UpstreamMissing, UserError
from instep.jobs import job_log
from instep.jobs.finish import abandon, fail_without_upstream, finish, here
from instep.jobs.garbage_collection import forget_some
from instep.jobs.heartbeat import Kind
from instep.jobs.idleness import ALONE, Place
from instep.jobs.membership import Membership, PartContext, Report
from instep.jobs.part_stops import PartStops
from instep.jobs.recovery import fail_orphans, recover, release_dead_processes
from instep.jobs.refining import Refining
from instep.jobs.retry import OUTAGE_SECONDS, RESUMES, Circuits, Outage, backoff
from instep.jobs.setup_cache import SetupCache
from instep.jobs.stalled_workers import StalledWorkers
from instep.jobs.stopping import Stopping
from instep.jobs.wave import WaveRunner
from instep.ledger.job_log import SPARK
from instep.ledger.plans import PlanLost
from instep.pipeline.engine.choice import EngineChoice
from instep.planning.context import Context
from instep.planning.upstream import PartKey, Setups, Waiting, wait_for
from instep.telemetry.context import context_fields, in_trace

#: The longest pause of an idle worker, in polls.
IDLE = 10
#: Rejected writes in a row, without a wave in between, that no other worker can explain.
FENCED_IN_A_ROW = 10


class Worker:
    """Chooses the next step of the parts that this process takes part in, does it, and judges its errors.

    `choices` maps partitions to the engine chosen for them, if one was; `refused` counts writes that were rejected
    because other workers had taken over.
    """

    def __init__(self, setups: Setups, context: Context, kind: Kind) -> None:
        self._setups = setups
        self._context = context
        self._kind = kind
        self._circuits = Circuits(context.clock)
        self._shown: dict[PartKey, int] = {}
        self._fenced_in_a_row = 0
        self._pauses = backoff(context.random)
        self.choices: dict[PartitionRef, EngineChoice] = {}
        self.reports: dict[PartitionRef, Report] = defaultdict(Report)
        self.refused = 0
        #: Partitions whose part has ended because its plan is lost.
        self.unplanned: set[PartitionRef] = set()
        self.membership = Membership(setups, context, kind)
        self._stops = PartStops(setups, context, kind, self.membership, self._circuits)
        self._swept: float | None = None
        #: A run ends, and whatever it has begun before it.
        self._refining = Refining(context) if kind == "worker" else None

    @property
    def id(self) -> str:
        return self.membership.id

    @property
    def problems(self) -> dict[PartitionRef, UserError]:
        """Errors of partitions that a run could not work on."""
        return self._stops.problems

    @property
    def waiting(self) -> Waiting:
        """The parts that wait for other partitions."""
        return self.membership.waiting

    def end(self, *, stop: Callable[[str], str] | None = None) -> None:
        """See `Membership.end`."""
        if self._refining is not None:
            self._refining.stop()
        self.membership.end(stop=stop)

    # Loops.

    def work(self, wanted: Collection[PartKey], begin: Callable[[], bool], *, wait: float) -> None:
        """Work until these parts have ended or their jobs were stopped. `begin` starts jobs for their upstream. Work
        that only other workers can do is waited for, `wait` seconds at most without progress.
        """
        refs = {ref for _, ref in wanted}
        standstill, swept = StalledWorkers(self._context, self.waiting, wait), False
        while True:
            if self._context.stops():
                raise Stopping
            upstream = self.waiting.upstream(self._setups, self.waiting.refs)
            found = self._stops.going_on(self._look(refs | upstream), wanted)
            parts = [each for each in found if each.key in wanted and each.part.ref not in self.problems]
            if not parts:
                return
            if self._stops.give_up_waiting(parts):
                continue
            others = [each for each in found if each.key not in wanted and each.part.ref in upstream]
            # Parts that wait come first: if their upstream fails, all are ended.
            parts = [*(each for each in others if each.key in self.waiting), *parts, *others]
            for each in parts:
                if each.workers > 1:
                    self.show(each.job_id, each.part.ref)
            if self._serve_one(parts) or (self.waiting.refs and self._begin_upstream(begin, wanted)):
                continue
            busy = standstill.look(parts, self.id)
            if busy is None:
                swept = False
                self._release_dead_processes()
                self._context.clock.sleep(self._context.timing.poll / 1000)
            elif not swept:
                with suppress(Transient, Unknown):  # The next look waits for the ledger.
                    self.recover()  # The other worker may have died, and be silent for long enough by now.
                    swept = True
            else:
                for each in parts:
                    self._stops.give_up(each.key, busy)

    def serve(
        self,
        begin: Callable[[], bool],
        *,
        until_idle: bool,
        longest: float | None = None,
        place: Place = ALONE,
    ) -> None:
        """Do all work on the worker's entities, for ever or until idle. `begin` starts jobs for wants and changes when
        no job is in work. `place`: among the other workers of this process.

        Pauses grow while there is nothing to do, so that idle servers do not load the ledger. `longest`: the longest
        pause, in seconds.
        """
        shortest = self._context.timing.poll / 1000
        pause, longest = shortest, IDLE * shortest if longest is None else max(longest, shortest)
        if place.idleness is not None:
            longest = shortest  # All have to look again before they know that they are idle.
        while not place.stops():
            began, worked = place.start(), False
            try:
                found = self._stops.going_on(self._look(self._setups))
                parts = [each for each in found if not place.leaves(each.part.ref)]
                worked = self._serve_one(parts) or self._begin(begin)
            finally:
                place.stop(worked=worked)
            if worked:
                pause = shortest
            elif until_idle and all(each.key in self.waiting for each in parts) and place.idle(began):
                if self._refining is not None:
                    self._refining.wait()
                return
            else:
                self._release_dead_processes()
                self._context.clock.sleep(pause)
                pause = min(1.5 * pause, longest)

    def _begin_upstream(self, begin: Callable[[], bool], wanted: Collection[PartKey]) -> bool:
        """Start the upstream of a run's parts. If a user has to mend the upstream, its waiting parts are given up."""
        try:
            return self._begin(begin)
        except UserError as error:
            left = [each for each in wanted if each in self.waiting]
            if not left:
                raise
            for key in left:
                self._stops.give_up(key, error)
            return True

    def _begin(self, begin: Callable[[], bool]) -> bool:
        try:
            return begin()
        except (Conflict, Fenced, Transient, Unknown):
            return False  # The next look shows the cause.

    def _look(self, refs: Collection[PartitionRef]) -> list[OpenPart]:
        """Read the open parts from the ledger, after recovery if it is due. Waits while the ledger is down."""
        clock, timing = self._context.clock, self._context.timing
        began, tried = clock.monotonic(), 0
        while True:
            try:
                if self.membership.heartbeat.lost:
                    self.membership.register_again()
                self._recover_if_due(refs)
                return self._context.ledger.open_parts.on(refs)
            except (Transient, Unknown) as error:
                tried += 1
                if self._kind == "run" and clock.monotonic() - began > timing.lease / 1000:
                    raise Away(str(error), hint=RESUMES) from error
                if tried == 1:
                    self._context.progress.say("ledger", f"{clause(error)}; trying again")
                clock.sleep(self._pauses.pause(tried))

    def recover(self) -> None:
        """Recover from dead workers now instead of at the first look."""
        recover(self._context)
        self._swept = self._context.clock.monotonic()

    def _release_dead_processes(self) -> None:
        """Free, before a pause, the work of processes on this host that have died, so that the next look finds it."""
        with suppress(Transient, Unknown):  # The next look waits for the ledger.
            release_dead_processes(self._context)

    def _recover_if_due(self, refs: Collection[PartitionRef]) -> None:
        now, context = self._context.clock.monotonic(), self._context
        if self._swept is not None and now - self._swept < context.timing.sweep / 1000:
            return
        recover(context)
        self._forget_what_ended()
        if isinstance(self._setups, SetupCache):
            self._setups.renew()
        if self._kind == "worker":
            fail_orphans(context.ledger.open_parts.on(refs), self._setups, context, self.id)
        self._swept = now

    def _serve_one(self, parts: Sequence[OpenPart]) -> bool:
        """Work on the first of these parts that can be worked on now."""
        return any(self._serve(each) for each in parts)

    def _serve(self, each: OpenPart) -> bool:
        key = each.key
        if self._stops.pauses(key):
            return False
        try:
            with context_fields(worker=self.id, job=each.job_id, ref=str(each.part.ref), instance=each.part.instance):
                done = self._advance(each)
        except Fenced as error:
            self._fenced(each, error)
            return True
        except Conflict as error:
            self._stops.race_lost(each, error)
            return False
        except (Unknown, Transient) as error:
            if isinstance(error, Unknown):
                self.membership.doubt(key)
            if isinstance(error, Outage):
                self._stops.wait_out(each, error)
            return False
        except UserError as error:
            if self._stops.is_over(key):
                self.membership.forget(key)
            elif self._kind == "run":
                self._stops.give_up(key, error)
            elif isinstance(error, Away):
                self._stops.wait_out(each, error)
            else:
                self._stops.set_aside(each, error)
            return False
        self._stops.race_over(key)
        if done:
            self._fenced_in_a_row = 0
        return done

    def _advance(self, each: OpenPart) -> bool:
        """Do the part's next step: a wave, or its end. False if this worker cannot do anything for it now."""
        ledger, ref = self._context.ledger, each.part.ref
        if each.job_state is JobState.STOPPING:
            ledger.sweep()  # The job ends as soon as no slice is in work.
            self.membership.acknowledge(each.job_id)
            return False
        part_context = self.membership.context_of(each)
        if part_context is not None and part_context.lost:
            self._abandon(each, part_context, f"its index ({each.part.physical}) is gone, or a part of it")
            return True
        if part_context is None or (each.processing and not each.pending):
            return False
        key = each.key
        failed = None if part_context.ready else self.waiting.look(key, part_context.part)
        if failed and each.pending:  # Without open slices it ends like other parts, by one elected worker.
            fail_without_upstream(
                part_context.setup,
                part_context.lease,
                self._context,
                worker_id=self.id,
                heartbeat=self.membership.heartbeat,
                error=failed,
            )
            self.membership.tell(ref, failed)
            self.membership.forget(key)
            return True
        part_context.ready = key not in self.waiting
        if not part_context.ready:
            return False
        with in_trace(part_context.traceparent):
            return self._go_on(each, part_context)

    def _go_on(self, each: OpenPart, part_context: PartContext) -> bool:
        ledger, ref = self._context.ledger, each.part.ref
        if each.job_state is JobState.READY:
            ledger.jobs.start(each.job_id)
        if each.pending:
            self.membership.live_refresh(each.key).keep_served(part_context.part)
            if self._circuits.of(part_context.setup).wait() > 0:
                return False
            try:
                return self._runner(each, part_context).run(each, partial(self._progress, each.key))
            except UpstreamMissing as error:
                wait_for(ledger, self._context.ids, each.job_id, part_context.part, self._context.named(error.name))
                part_context.ready = False  # The next look says what it waits for.
                return True
            except PlanLost as error:
                self._abandon(each, part_context, error.what)
                return True
        notes = self._finish(each, part_context)
        if notes is None:
            return False
        if part_context.runner and (measured := part_context.runner.measured):
            with suppress(InstepError):  # The next job measures it, too.
                ledger.paces.record(ref.entity, part_context.setup.how, measured)
        self.reports[ref].notes += notes
        self.reports[ref].task_cpu += part_context.runner.task_cpu if part_context.runner else 0.0
        done = ledger.jobs.get(each.job_id) if self._kind == "worker" else None
        counts = f": {done.part(ref).counts}" if done else ""
        self.membership.tell(ref, f"its part of job {each.job_id[:8]} is finished{counts}")
        if done:  # A run shows them in the end; what holds a part back is told with what follows from it.
            held_back_by = ended_badly(done, done.part(ref))
            for note in notes:
                if cleaned(note) != held_back_by:
                    self.membership.tell(ref, note)
        self.membership.forget(each.key)
        if self._context.retention:
            with suppress(InstepError):  # The next job forgets it.
                forget_some(ledger, keep=self._context.retention)
        return True

    def _finish(self, each: OpenPart, part_context: PartContext) -> list[str] | None:
        """See `finish`. Raises `Outage` when it has failed for too long: a run must end, too."""
        circuit = self._circuits.of(part_context.setup)
        if circuit.wait() > 0:
            return None
        try:
            notes = finish(
                part_context.setup,
                part_context.lease,
                self._context,
                job_id=each.job_id,
                worker_id=self.id,
                heartbeat=self.membership.heartbeat,
                live_refresh=self.membership.live_refresh(each.key),
                once=part_context.runner.once if part_context.runner else here,
                sound=part_context.sound,
                refining=self._refining,
            )
        except Transient as error:
            circuit.failed()
            if circuit.down_for() > OUTAGE_SECONDS:
                raise Outage(str(error)) from error
            raise
        circuit.succeeded()
        return notes

    def _abandon(self, each: OpenPart, part_context: PartContext, why: str) -> None:
        """End a part whose plan or index is lost. The rest is planned again: by the run, or for its want."""
        ref = each.part.ref
        abandon(
            part_context.setup,
            part_context.lease,
            self._context,
            worker_id=self.id,
            heartbeat=self.membership.heartbeat,
            why=why,
        )
        self._context.progress.say(ref.label, f"{why}; the rest is planned again")
        self.membership.forget(each.key)
        self.unplanned.add(ref)

    def _runner(self, each: OpenPart, part_context: PartContext) -> WaveRunner:
        if part_context.runner is None:
            ref = each.part.ref
            choice = self.choices.get(ref) or self._context.choose(part_context.setup, each.head * each.pending)
            engine = self._context.engine(choice)
            if engine.name == "spark" and self._kind == "run":  # Its start takes seconds.
                self._context.progress.say(ref.label, f"runs on Spark: {choice.reason}")
            engine.ready()  # Before anything is claimed.
            if page := getattr(engine, "page", None):
                job_log.add(self._context.ledger, SPARK, page)
            self.reports[ref].engine = engine.name
            part_context.runner = WaveRunner(
                part_context.setup,
                part_context.part,
                base=part_context.part.base if part_context.fenced else None,
                job_id=each.job_id,
                worker_id=self.id,
                engine=engine,
                pace=choice.pace,
                context=self._context,
                heartbeat=self.membership.heartbeat,
                circuit=self._circuits.of(part_context.setup),
                notes=self.reports[ref].notes,
                unseen=self.membership.live_refresh(each.key).unseen,
            )
        return part_context.runner

    # Errors.

    def _fenced(self, each: OpenPart, error: Fenced) -> None:
        self.refused += 1
        self._fenced_in_a_row += 1
        key, ref = each.key, each.part.ref
        self._context.counters.refused(ref.entity)
        self._context.progress.say(ref.label, f"lease lost to another worker; dropping this part: {error}")
        self.membership.forget(key)
        if self._fenced_in_a_row >= FENCED_IN_A_ROW:
            self._fenced_in_a_row = 0
            problem = UserError(
                f"{ref} was taken over by another worker: {error}",
                hint="Nothing is lost: the other one continues; see `instep workers`. If there is none, the target is "
                "newer than the ledger (was that replaced?): move the target's folder away and rebuild.",
            )
            self._stops.leave(each, problem)

    def registered_again(self) -> bool:
        """Ask the ledger whether others declared this worker dead; if so, register again under a new id."""
        self.membership.heartbeat.beat()
        if not self.membership.heartbeat.lost:
            return False
        self.membership.register_again()
        return True

    # Housekeeping and reports.

    def _forget_what_ended(self) -> None:
        self.membership.forget_what_ended()
        self._shown = {key: units for key, units in self._shown.items() if key[0] in self.membership.jobs}
        if self._kind == "worker":  # They were reported.
            for report in self.reports.values():
                report.notes.clear()

    def _progress(self, key: PartKey, units: int) -> None:
        self._shown[key] = self._shown.get(key, 0) + units
        self._context.progress.advance(key[1].label, units)

    def show(self, job_id: str, ref: PartitionRef) -> None:
        """Advance the bar by the work of other workers, and by work done before this one joined. It stays as it is
        without an answer of the ledger: the next look waits for that.
        """
        try:
            job = self._context.ledger.jobs.get(job_id)
        except (Transient, Unknown):
            return
        done = job.part(ref).done if job else 0
        missing = done - self._shown.get((job_id, ref), 0)
        if missing > 0:
            self._progress((job_id, ref), missing)
