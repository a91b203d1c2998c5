"""One schedule: some processes, a world that goes wrong as a seed says, and a quiet end in which all must mend."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Literal, cast
from unittest.mock import patch

from instep.bus.status_reporter import StatusReporter
from instep.domain.clock import TIMING, Timing
from instep.domain.jobs import JobPart, JobState
from instep.domain.manifest import DeleteGuard, SourceDocument
from instep.domain.planning import SliceSizing
from instep.domain.promotion_rules import NEEDED
from instep.domain.refs import Naming, PartitionRef
from instep.entities.documents.setup import DocumentSetup
from instep.entities.plan_request import PlanOptions
from instep.entities.setup import EntitySetup
from instep.errors import InstepError
from instep.jobs import early_upkeep
from instep.jobs.entity_result import EntityResult
from instep.jobs.promote import promote
from instep.jobs.run import run_entities
from instep.jobs.serve import serve
from instep.ledger.ledger import Ledger
from instep.pipeline.engine.choice import EngineChoice, pace_of
from instep.planning.context import Context
from instep.planning.loaded import Loaded
from instep.telemetry.progress import Silent
from tests.simulator.model import ModelLedger

from .checker import Checker
from .documents import WRONG, Source
from .engine import Program, SimEngine
from .faults import EFFECTS, HEART, Chaos, Fault, Outage, Port, Weather, World
from .relations import Relations
from .requests import Requests
from .scheduler import LedgerClock, Policy, Process, ProcessClock, Scheduler, Stuck, Task, Turns
from .status_keys import SimStatusKeys
from .target import SimTarget
from .users import Users
from .waiting import IN_VAIN

MINUTE = 60_000
#: After the faults have stopped, everything must have come to an end within this time (milliseconds).
QUIET = 90 * MINUTE
#: So long after that an index that is not served is taken for a leftover.
IDLE = 61 * MINUTE
#: Runs that may be needed after that until one finds nothing to do: poison kills one each time.
MENDS = 60

#: A run is the same each time it is made.
NAMING = Naming("00000000-0000-4000-8000-000000000001")

MakeLedger = Callable[[LedgerClock, Timing], Ledger]


def model_ledger(clock: LedgerClock, timing: Timing) -> Ledger:
    return ModelLedger(clock, timing=timing, naming=NAMING)


@dataclass(frozen=True)
class Product:
    """What is simulated: replaced in part by seeded bugs."""

    ledger: MakeLedger = model_ledger
    target: Callable[[Callable[[], float]], SimTarget] = SimTarget


@dataclass(frozen=True, slots=True)
class Report:
    """How a schedule went. `broken` must be empty."""

    seed: int
    broken: Sequence[str]
    counters: dict[str, int]
    steps: int
    trace: tuple[tuple[float, str, str], ...] = ()


class Chance:
    """Implements `scheduler.Policy` by a seed: with `eager` a task goes on without giving way."""

    def __init__(self, random: Random, eager: float) -> None:
        self._random = random.random
        self._eager = eager

    def switches(self, call: str) -> bool:
        return self._random() >= self._eager

    def pick(self, ready: list[Task]) -> Task | None:
        return ready[0] if len(ready) == 1 else ready[int(self._random() * len(ready))]

    def idle(self) -> bool:
        return False


class Host:
    """Implements `ledger.liveness.Liveness` for the processes of one host."""

    def __init__(self) -> None:
        self.owners: dict[str, Process] = {}

    def of(self, process: Process) -> _Proofs:
        return _Proofs(self, process)


class _Proofs:
    def __init__(self, host: Host, process: Process) -> None:
        self._host = host
        self._process = process

    def begin(self, worker_id: str) -> Callable[[], None]:
        owners, process = self._host.owners, self._process
        owners[worker_id] = process

        def end() -> None:
            if not process.dead:  # A process that is gone clears nothing away.
                owners.pop(worker_id, None)

        return end

    def proved_dead(self, worker_id: str) -> bool:
        owner = self._host.owners.get(worker_id)
        return owner is not None and owner.dead

    def all_dead(self) -> list[str]:
        return [each for each in self._host.owners if self.proved_dead(each)]

    def forget(self, worker_id: str) -> None:
        self._host.owners.pop(worker_id, None)


class _Ids:
    """Implements `domain.clock.Ids` by a seed."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def new(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128)))


class Simulation:
    """Builds the world of a seed. `run` plays it and says what was broken."""

    def __init__(
        self,
        seed: int,
        product: Product,
        *,
        timing: Timing = TIMING,
        policy: Policy | None = None,
        weather: Weather | None = None,
    ) -> None:
        self.seed = seed
        self._weather = weather
        random = self._random = Random(seed)
        self._timing = timing
        stretch = random.choice((40.0, 120.0, 400.0))
        chance = Chance(random, random.choice((0.0, 0.5, 0.9)))
        scheduler = self._scheduler = Scheduler(
            policy or chance, oversleep=lambda asked: _oversleep(asked, stretch, random)
        )
        self.world = World(scheduler, Chaos(random))
        self.world.network = Process("network", "nowhere", scheduler)
        self._operator = Process("operator", "nowhere", scheduler)
        self._status = SimStatusKeys()
        self.ledger = product.ledger(LedgerClock(scheduler), timing)
        self.target = product.target(lambda: scheduler.now / 1000)
        self._hosts = {"alpha": Host(), "beta": Host()}
        self._fingerprint = {"transform": "1"}
        poison = random.choice((0.0, 0.0, 0.0, 0.1, 0.3))
        self._poison = poison > 0
        relations = self._relations = Relations.of(seed)
        names = ["Document", "Article"][: random.choice((1, 1, 2))]
        names = relations.names or names
        most = random.choice((2, 4, 8))
        self.sources = {name: Source(name, random, most=most, poison=poison) for name in names}
        self._refs = {name: PartitionRef(name) for name in names}
        self._buckets = random.choice((1, 2, 3))
        self.needed = NEEDED
        # How much work a row is: waves of several slices, or slices so long that they are split.
        self._weight = random.choice((1.0, 40.0, 10_000.0))
        self._requests = Requests(names, seed)
        self.processes: list[Process] = []
        self._checker = Checker(self.world, self.ledger, self.target, self.sources, relations.upstream, timing)
        self._quiet = False
        self.world.watch = self._checker.watch

    # What processes run.

    def setups(self, process: Process, names: Iterable[str]) -> list[EntitySetup]:
        return [self._setup(process, name, priority) for priority, name in enumerate(names)]

    def _setup(self, process: Process, name: str, priority: int) -> EntitySetup:
        source = self.sources[name]

        def program(part: JobPart, base: int, _into: object) -> Any:
            return Program(source, self.target, part.physical, base, part.fingerprint["transform"])

        return DocumentSetup(
            ref=self._refs[name],
            source=_Listed(process, source),
            source_text=name,
            target=Port(self.target, "target", process, self.world),
            target_name="sim",
            dimensions=1,
            buckets=self._buckets,
            sizing=SliceSizing(row_bytes=1, slice_rows=round(1_000 * self._weight), work_factor=self._weight),
            priority=40 + priority,
            guard=DeleteGuard(),
            needs_spark=False,
            fingerprints=partial(dict, dict(self._fingerprint)),
            embedder=_no_embedder,
            query_embedder=_no_embedder,
            programs=program,
            planning_folder=Path(os.devnull),  # Nothing is repaired.
            ttl=None,
            revision=lambda: "simulated",
            depends_on=tuple(self._refs[each] for each in self._relations.upstream.get(name, ())),
            needed=self.needed,
            samples=0,  # The target has no chunks that could be read back.
        )

    def context(self, process: Process) -> Context:
        random = Random(self.seed * 1_000 + process.number)  # Its own: what others do changes none of its ids.
        engine = SimEngine(process, random, self._weight * random.choice((10.0, 100.0, 1_000.0)))
        return Context(
            ledger=cast(Ledger, Port(self.ledger, "ledger", process, self.world)),
            clock=ProcessClock(process),
            ids=_Ids(random),
            background=Turns(process),
            random=random.random,
            timing=self._timing,
            liveness=self._hosts[process.host].of(process),
            progress=Silent(),
            status_reporter=StatusReporter(lambda: self._status, Silent()),
            choose=lambda _, work, *, documents=0: EngineChoice(
                "inline", "simulated", work, 0.0, 0.0, pace_of("inline", 2)
            ),
            engine=lambda _: engine,
            prepare=lambda _: None,
            loaded=Loaded(self.ledger.present()),
        )

    def process(self, kind: str, entities: Sequence[str], *, exact: bool = False) -> Process:
        random = self._random
        host = random.choice(sorted(self._hosts))
        process = Process(
            f"{kind}-{len(self.processes)}", host, self._scheduler, tuple(entities), number=len(self.processes)
        )
        if not exact:
            process.skew = random.choice((0, 0, -7 * MINUTE, 11 * MINUTE))
            process.rate = random.choice((1.0, 1.0, 0.995, 1.005))
        self.processes.append(process)
        return process

    def start_run(self, names: Sequence[str], *, wait: float, options: PlanOptions, exact: bool = False) -> Process:
        process = self.process("run", names, exact=exact)
        setups, context = self.setups(process, names), self.context(process)
        upstream = self.setups(process, self._relations.above(names))
        process.start(lambda: run_entities(setups, context, options, wait_seconds=wait, upstream=upstream))
        return process

    def start_promotion(self, name: str, generation: str) -> None:
        process = self.process("promote", [name])
        (setup,), context = self.setups(process, [name]), self.context(process)
        process.start(lambda: promote(setup, generation, context))

    def start_worker(self, names: Sequence[str]) -> Process:
        process = self.process("worker", names)
        setups, context = self.setups(process, names), self.context(process)
        process.start(lambda: serve(setups, context))
        return process

    # The schedule.

    def run(self) -> Report:
        try:
            with patch.object(early_upkeep, "DOCUMENTS", 1):  # Its documents are few.
                self._play()
        except Stuck as stuck:
            self.world.broken.append(f"stuck: {stuck}; alive: {[p.name for p in self.processes if not p.over]}")
        finally:
            self._scheduler.close()
        self._checker.histories(self.processes)
        trace = tuple((each.at, each.process, each.name) for each in self.world.history)
        return Report(self.seed, tuple(self.world.broken), self.world.counters, self._scheduler.steps, trace)

    def _play(self) -> None:
        random, scheduler = self._random, self._scheduler
        if random.random() < 0.5:
            self._mend()  # There is an index already, and this job changes it.
            self._edit()
        elif self._relations.late:
            next(iter(self.sources.values())).empty = True
        until = scheduler.now + random.uniform(1, 25) * MINUTE
        self._begin_chaos(until)
        for slot in range(random.choice((1, 2, 2, 3))):
            self._spawn(f"slot {slot}", partial(self._supervise, slot, until), after=random.choice((0, 0, 3_000)))
        self._spawn("script", lambda: self._script(until))
        if self._relations.generations:
            self._spawn("promoters", lambda: self._promote(until))
        users = Users(
            self._undisturbed(), list(map(PartitionRef, self.sources)), self.seed, self._relations.generations
        )
        self._spawn("users", lambda: users.live(self._operator.sleep, lambda: scheduler.now > until))
        if self._requests.some:
            self._spawn("publisher", lambda: self._publish(until))
            self._spawn("takers", lambda: self._take_requests(until))
        self._spawn("warden", lambda: self._warden(until))
        scheduler.run(lambda: self._quiet, deadline=until + QUIET)
        for process in self.processes:
            if not process.over:
                process.interrupt()
                process.paused_until = min(process.paused_until, scheduler.now)
        scheduler.run(lambda: all(each.over for each in self.processes), deadline=scheduler.now + QUIET)
        self._checker.at_rest(self.processes)
        self._settle()
        if self._requests.some:
            self._requests.redeliver()
            self._requests.take(self.ledger)
        self._mend()
        if self._requests.some:
            self.world.broken += self._requests.unanswered(self.ledger)
        # What was delivered late may have left something; any worker's sweep takes it away.
        scheduler.now += self._timing.stale + self._timing.grace
        self.ledger.sweep()
        self._checker.final()

    def _spawn(self, name: str, run: Callable[[], None], *, after: float = 0.0) -> None:
        self._scheduler.spawn(self._operator, name, run, after=after)

    def _begin_chaos(self, until: float) -> None:
        random, now = self._random, self._scheduler.now
        chaos = self.world.chaos
        chaos.until = until
        chaos.rate = random.choice((0.0, 0.01, 0.05))
        chaos.focus = frozenset(random.sample(random.choice((EFFECTS, HEART)), random.randint(1, 3)))
        chaos.focused = random.choice((0.1, 0.3, 0.6))
        chaos.left = random.choice((1, 3, 6, 12))
        chaos.pause = (self._timing.lease, 3 * self._timing.lease)
        chaos.kinds = tuple(random.sample(list(Fault), random.randint(2, len(Fault))))
        if random.random() < 0.3:  # Workers that come back from the dead in the middle of a wave.
            chaos.kinds = (Fault.PAUSE_BEFORE, Fault.PAUSE_BEFORE, Fault.CRASH_BEFORE, Fault.LATE, Fault.TWICE)
            chaos.focus = frozenset(random.sample(("slices.claim", "fence", "commit", "slices.complete", "promote"), 2))
        outages = []
        while random.random() < 0.3:
            begin = random.uniform(now, now + 3 * MINUTE)
            length = random.choice((2_000, 20_000, 2 * MINUTE, 8 * MINUTE))
            kind: Literal["ledger", "target"] = random.choice(("ledger", "target"))
            alone = random.choice((None, None, *range(len(self.processes), len(self.processes) + 3)))
            outages.append(Outage(kind, alone, begin, min(begin + length, until)))
        chaos.outages = tuple(outages)
        if self._relations.generations and self._relations.random.random() < 0.5:
            chaos.focus |= {"events.append"}
        if self._weather:
            chaos.focus, chaos.kinds = self._weather
            chaos.focused, chaos.left = max(chaos.focused, 0.3), max(chaos.left, 6)

    def _supervise(self, slot: int, until: float) -> None:
        """Keeps one process going: what dies is started again, sooner or later."""
        random, scheduler, operator = self._random, self._scheduler, self._operator
        kind = "run" if slot == 0 or random.random() < 0.4 else "worker"
        while True:
            names = list(self.sources) if random.random() < 0.8 else self._relations.some(list(self.sources))
            if kind == "run":
                options = PlanOptions(full_refresh=random.random() < 0.3, generation=self._relations.asked())
                process = self.start_run(names, wait=random.choice((0.0, 30.0, 3600.0)), options=options)
            else:
                process = self.start_worker(names)
            while not process.over:
                operator.sleep(60_000)
            operator.sleep(random.choice((500, 20_000, 5 * MINUTE)))
            if scheduler.now > until or random.random() < 0.15:
                return

    def _script(self, until: float) -> None:
        """What people and machines do to a running system."""
        random, scheduler = self._random, self._scheduler
        mean = random.choice((30_000, 3 * MINUTE, 20 * MINUTE))
        actions = random.choices(("edit", "kill", "interrupt", "stop", "pause", "change"), k=3)
        while True:
            self._operator.sleep(random.expovariate(1 / mean))
            if scheduler.now > until:
                return
            living = [each for each in self.processes if not each.over]
            action = random.choice(actions)
            if action == "edit":
                self._edit()
            elif action == "change" and not self._poison and random.random() < 0.5:
                self._change_transform()
            elif action == "stop":
                self._request_stop()
            elif living and action in ("kill", "interrupt", "pause"):
                self._disturb(random.choice(living), action)

    def _promote(self, until: float) -> None:
        """Promote another generation, now and then; nothing may be built of it."""
        random, generations = self._relations.random, ("", *self._relations.generations)
        mean = random.choice((MINUTE, 5 * MINUTE))
        while True:
            self._operator.sleep(random.expovariate(1 / mean))
            if self._scheduler.now > until:
                return
            name = random.choice(list(self.sources))
            built = [each.generation for each in self.ledger.checkpoints.of_partition(self._refs[name])]
            self.start_promotion(name, random.choice(built if len(built) > 1 else generations))

    def _publish(self, until: float) -> None:
        scheduler = self._scheduler
        self._requests.publish(self._operator.sleep, self.ledger.now, lambda: scheduler.now > until)

    def _take_requests(self, until: float) -> None:
        """Processes that store messages; the next one begins when one has died."""
        random, scheduler = self._requests.random, self._scheduler
        while scheduler.now < until:
            process = Process("requests", "nowhere", scheduler)
            port = cast(Ledger, Port(self.ledger, "ledger", process, self.world))
            process.start(partial(self._requests.take, port))
            while not process.over:
                self._operator.sleep(1_000)
            self.world.broken += self._requests.lost(self.ledger)
            self._operator.sleep(random.choice((5_000, 60_000)))

    def _change_transform(self) -> None:
        """Now and then to one that is wrong, and from that to a good one again."""
        number = int(self._fingerprint["transform"].rstrip(WRONG)) + 1
        wrong = self._random.random() < 0.3
        self._fingerprint["transform"] = f"{number}{WRONG if wrong else ''}"

    def _disturb(self, process: Process, action: str) -> None:
        if action == "kill":
            process.kill()
        elif action == "interrupt":
            process.interrupt()
        else:
            process.paused_until = self._scheduler.now + self._random.uniform(1, 3) * self._timing.lease
        self.world.count(f"{action} from outside")

    def _undisturbed(self) -> Any:
        """The ledger as people see it: each call is a step, and goes well."""
        return Port(self.ledger, "ledger", self._operator, replace(self.world, chaos=Chaos(self._random)))

    def _request_stop(self) -> None:
        port = self._undisturbed()
        for job in self.ledger.jobs.newest(1):
            if job.state.ended:
                continue
            self.world.count("stop asked")
            try:
                port.jobs.request_stop(job.id)
            except InstepError:
                return

    def _edit(self) -> None:
        for source in self.sources.values():
            source.edit()

    def _warden(self, until: float) -> None:
        """Says when it is quiet: no run goes on, and no job is open that a living worker could do."""
        while True:
            self._operator.sleep(max(20_000.0, until - self._scheduler.now))
            for process in self.world.chaos.alarms:
                process.paused_until = min(process.paused_until, self._scheduler.now)
            self.world.chaos.alarms.clear()
            living = [each for each in self.processes if not each.over]
            if any(not each.name.startswith("worker") for each in living):
                continue
            refs = {PartitionRef(name) for each in living for name in each.entities}
            if not self._checker.to_be_done(refs):
                self._quiet = True
                return

    def _mend(self) -> None:
        """Without faults, run after run until nothing is left to do."""
        self.world.chaos.left, self.world.chaos.outages = 0, ()
        self.world.chaos.alarms.clear()
        for _ in range(MENDS):
            done = [self._did_something(generation, names) for generation, names in self._known()]
            if not any(done):
                return
        self.world.broken.append(f"after {MENDS} runs without faults there is still something to do")

    def _did_something(self, generation: str | None, names: Sequence[str]) -> bool:
        process = self.start_run(names, wait=3600.0, options=PlanOptions(generation=generation), exact=True)
        self._scheduler.run(partial(_is_over, process), deadline=self._scheduler.now + QUIET)
        results: Any = process.result
        return results is None or any(
            each.problem is not None or (each.state is not None and not _in_vain(each)) for each in results
        )

    def _known(self) -> list[tuple[str | None, list[str]]]:
        """What is read, and all generations that there are, or that are wanted, with the entities they are of."""
        found: dict[str | None, list[str]] = {None: list(self.sources)}
        if self._relations.generations:
            for name, ref in self._refs.items():
                there = {each.generation for each in self.ledger.instances.newest(ref, 1_000)}
                wanted = {each.generation for each in self.ledger.wants.newest(ref=ref, open_only=True)}
                for generation in sorted(there | wanted):
                    found.setdefault(generation, []).append(name)
        return list(found.items())

    def _settle(self) -> None:
        """Before the last runs: nothing is under way any more, sources are all there, and leftovers are old."""
        scheduler, relations = self._scheduler, self._relations
        for source in self.sources.values():
            source.empty = False
        if relations.generations:
            scheduler.run(lambda: not self.world.network.tasks, deadline=scheduler.now + QUIET)
            scheduler.now += IDLE
            self._edit()


class _Listed:
    """A process's view of a source: listing it is a step."""

    def __init__(self, process: Process, source: Source) -> None:
        self._process = process
        self._source = source

    def list(self, progress: Callable[[int], None] | None = None) -> Any:
        self._process.step()
        return self._source.listing()

    titled = False

    def contents(self, documents: Iterable[SourceDocument], *, max_bytes: int) -> Any:
        raise AssertionError("the simulator's engine reads documents itself")


def _no_embedder() -> Any:
    raise AssertionError("nothing is embedded in a simulation")


def _oversleep(asked: float, stretch: float, random: Random) -> float:
    """Short sleeps may last longer than asked for, as they do on a busy machine (and polling costs real time)."""
    return asked * random.uniform(1.0, stretch) if asked <= 1_000 else asked


def _in_vain(result: EntityResult) -> bool:
    """What it is made from is held back: the next run can do no more about it."""
    return result.state is JobState.FAILED and any(IN_VAIN in each for each in result.notes)


def _is_over(process: Process) -> bool:
    return process.over


def play(seed: int, product: Product | None = None, weather: Weather | None = None) -> Report:
    return Simulation(seed, product or Product(), weather=weather).run()


def command(seed: int, ledger: str) -> str:
    """How to see one schedule again."""
    return f"python -m tests.simulator --ledger {ledger} --seed {seed} --history"
