"""Ports in front of ledger and target: every call is a yield point, and may go wrong as a seed says."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from random import Random
from typing import Any, Literal, NamedTuple

from instep.errors import InstepError, Transient, Unknown
from instep.ledger.ledger import Ledger
from instep.ledger.plans import PlanLost
from instep.ledger.transaction import Store

from .scheduler import Crash, Process, Scheduler
from .target import SimTarget

Kind = Literal["ledger", "target"]

#: Calls that change nothing: their reply can be lost, but there is no effect to be unsure of.
READS = frozenset(
    (
        *(
            "now",
            "workers.all",
            "jobs.get",
            "jobs.newest",
            "jobs.unfinished",
            "open_parts.on",
            "slices.holds",
            "plans.changes",
            "checkpoints.get",
            "documents.entries",
            "documents.totals",
        ),
        *("failures.versions", "failures.newest", "failures.count", "documents.get", "jobs.latest", "parts.of_epoch"),
        *("parts.reaching", "jobs.marks", "figures"),
        *(
            "events.rows",
            "instances.canonical",
            "instances.get",
            "instances.newest",
            "wants.get",
            "wants.newest",
            "wants.startable",
            "events.state",
            "events.verify",
        ),
        "open_parts.wanted_stopped",
        *("checkpoints.of_partition", "partitions.promoted", "partitions.indexes"),
        *("check", "exists", "committed", "served", "rows", "leftovers"),
        *("key_leases.held", "key_leases.due", "key_leases.parked", "key_leases.count", "read", "confirm"),
    )
)

#: Those around a commit: half of the schedules look at nothing else.
HEART = (
    "slices.claim",
    "slices.holds",
    "fence",
    "commit",
    "slices.complete",
    "parts.begin_finish",
    "promote",
    "parts.finish",
)

#: Calls whose effect, or the loss of it, decides something: a schedule lets some of them go wrong more often.
EFFECTS = (
    *HEART,
    *(
        "jobs.begin",
        "parts.plan",
        "jobs.discard",
        "jobs.join",
        "jobs.leave",
        "jobs.start",
        "slices.give_back",
        "slices.split",
        "plans.changes",
    ),
    *("leases.acquire", "leases.transfer", "leases.renew", "parts.adopt", "parts.stop", "instances.new"),
    *("workers.register", "workers.heartbeat", "workers.evict", "sweep", "workers.retire"),
    *("create", "committed", "maintain", "drop"),
)

#: Calls at which a paused process may wake up.
ALARMS = (*HEART, "committed", "slices.give_back", "parts.adopt", "leases.transfer", "drop", "workers.retire")


class Fault(Enum):
    CRASH_BEFORE = auto()
    CRASH_AFTER = auto()
    PAUSE_BEFORE = auto()  # Longer than the lease: SIGSTOP.
    PAUSE_AFTER = auto()
    SLOW_BEFORE = auto()
    SLOW_AFTER = auto()
    REFUSED = auto()  # Transient: there was no effect.
    LOST = auto()  # Unknown: there was an effect.
    NOTHING = auto()  # Unknown: there was none.
    LATE = auto()  # Unknown, and the effect comes later.
    TWICE = auto()  # Delivered twice, the second time much later.


_DELAYS = (Fault.PAUSE_BEFORE, Fault.PAUSE_AFTER, Fault.SLOW_BEFORE, Fault.SLOW_AFTER)


class Weather(NamedTuple):
    """A schedule of faults that are not left to chance alone: these calls go wrong often, in one of these ways."""

    calls: frozenset[str]
    kinds: tuple[Fault, ...]


class Outage(NamedTuple):
    """A store is out of reach of one process (or of all) for a while."""

    kind: Kind
    process: int | None
    begin: float
    end: float


class Event(NamedTuple):
    """A call that had its effect, or was refused by the store: the histories that the checker reads."""

    at: float
    process: str
    kind: Kind
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    error: InstepError | None


@dataclass
class Chaos:
    """Which faults happen: each call goes wrong with `rate`, those of `focus` with `focused`, until `until` or
    until `left` faults were had. A paused process with an alarm goes on as soon as another makes that call.
    """

    random: Random
    rate: float = 0.0
    focused: float = 0.0
    focus: frozenset[str] = frozenset()
    left: int = 0
    until: float = 0.0
    kinds: tuple[Fault, ...] = tuple(Fault)
    outages: tuple[Outage, ...] = ()
    pause: tuple[float, float] = (0.0, 0.0)
    alarms: dict[Process, str] = field(default_factory=dict)

    def fault(self, name: str, now: float) -> Fault | None:
        rate = self.focused if name in self.focus else self.rate
        if not self.left or now > self.until or self.random.random() >= rate:
            return None
        self.left -= 1
        return self.random.choice(self.kinds)

    def down(self, kind: Kind, process: int, now: float) -> bool:
        return any(
            each.kind == kind and each.begin <= now < each.end and each.process in (None, process)
            for each in self.outages
        )


@dataclass
class World:
    """What the processes share: the scheduler, the faults to come, and what has happened.

    `watch` sees each call that has an effect or is refused; `told`, if it is set, reads as well.
    """

    scheduler: Scheduler
    chaos: Chaos
    history: list[Event] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    network: Process = None  # type: ignore[assignment]  # set right after the scheduler is there
    watch: Callable[[Event], None] = lambda _: None
    told: Callable[[Event], None] | None = None

    def count(self, what: str) -> None:
        self.counters[what] = self.counters.get(what, 0) + 1


class Port:
    """Stands in front of a ledger or target, for one process. Calls of a ledger's stores are named `slices.claim`."""

    def __init__(self, inner: Any, kind: Kind, process: Process, world: World, store: str = "") -> None:
        for name, each in vars(inner).items() if isinstance(inner, Ledger) else ():
            if isinstance(each, Store):
                setattr(self, name, _StorePort(each, kind, process, world, f"{name}."))
        self._inner = inner
        self._store = store
        self._kind: Kind = kind
        self._process = process
        self._world = world

    @property
    def kind(self) -> Any:
        return self._inner.kind

    def close(self) -> None:
        return

    def __getattr__(self, name: str) -> Any:
        if not callable(getattr(self._inner, name)):
            return getattr(self._inner, name)
        setattr(type(self), name, _forwarded(name))  # For good: ports are many, and their calls the same.
        return getattr(self, name)

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        process, world, method = self._process, self._world, getattr(self._inner, name)
        name = self._store + name
        process.step(name)
        chaos, now = world.chaos, world.scheduler.now
        if chaos.alarms:
            self._ring(name)
        if chaos.outages and chaos.down(self._kind, process.number, now):
            world.count(f"{self._kind} out of reach")
            raise Transient(f"{self._kind} is out of reach")
        fault = chaos.fault(name, now) if chaos.left else None
        if fault is None:
            return self._effect(name, method, args, kwargs)
        return self._faulty(fault, name, method, args, kwargs)

    def _effect(self, name: str, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = error = None
        try:
            result = method(*args, **kwargs)
        except InstepError as caught:
            error = caught
        if name == "committed" and result:
            self._world.count("found committed")
        world = self._world
        if error is not None or name not in READS or world.told is not None:
            event = Event(world.scheduler.now, self._process.name, self._kind, name, args, kwargs, result, error)
            if error is not None or name not in READS:
                world.history.append(event)
                world.watch(event)
            if world.told is not None:
                world.told(event)
        if error is not None:
            raise error
        return result

    def _faulty(
        self, fault: Fault, name: str, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        process, world = self._process, self._world
        random = world.chaos.random
        effect = partial(self._effect, name, method, args, kwargs)
        world.count(fault.name.lower().replace("_", " "))
        if name == "commit" and fault in (Fault.LOST, Fault.NOTHING, Fault.LATE):
            world.count("unknown commits")
        if fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER):
            if fault is Fault.CRASH_AFTER:
                with suppress(InstepError):
                    effect()
            process.kill()
            raise Crash(process.name)
        if fault in _DELAYS:
            delay = self._pause if "PAUSE" in fault.name else partial(process.sleep, random.expovariate(1 / 20_000))
            return _delayed(effect, delay, after=fault.name.endswith("AFTER"))
        if name == "plans.changes" and fault is not Fault.REFUSED:
            world.count("plans lost")
            raise PlanLost("injected: its file is lost")
        if fault is Fault.REFUSED or (name in READS and fault is not Fault.TWICE):
            raise Transient("injected: no effect")
        if fault is Fault.NOTHING:
            raise Unknown("injected: it never arrived")
        if fault is Fault.LATE:
            self._later(name, method, args, kwargs, random.expovariate(1 / 60_000))
            raise Unknown("injected: it arrives later")
        result = effect()
        if fault is Fault.LOST:
            raise Unknown("injected: the reply was lost")
        if name not in READS:
            self._later(name, method, args, kwargs, random.expovariate(1 / 200_000))
        return result

    def _pause(self) -> None:
        """SIGSTOP, until its time is up; or, after that, until just before or after another's call."""
        process, chaos, now = self._process, self._world.chaos, self._world.scheduler.now
        process.paused_until = now + chaos.random.uniform(*chaos.pause)
        if chaos.random.random() < 0.7:
            process.paused_until += 10 * chaos.pause[1]
            process.stopped_until = now + chaos.pause[0]
            chaos.alarms[process] = chaos.random.choice(ALARMS)
        process.step()

    def _ring(self, name: str) -> None:
        now = self._world.scheduler.now
        for process, call in list(self._world.chaos.alarms.items()):
            if call == name and process is not self._process and process.stopped_until <= now:
                del self._world.chaos.alarms[process]
                process.paused_until = now
                self._process.give_way()

    def _later(
        self, name: str, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], delay: float
    ) -> None:
        """Delivered by the network, whatever became of the sender."""
        world, inner = self._world, self._inner
        version = inner.version(args[0]) if isinstance(inner, SimTarget) and name == "commit" else None

        def deliver() -> None:
            # A commit is made for one version: it lands on that one or not at all.
            if version is not None and inner.version(args[0]) != version:
                return
            try:
                self._effect(name, method, args, kwargs)
            except InstepError:
                return
            except Exception as error:
                world.broken.append(f"late {name}: {type(error).__name__}: {error}")

        world.scheduler.spawn(world.network, f"late {name}", deliver, after=delay)


class _StorePort(Port):
    """Of one store of a ledger, whose name is before that of the call: `slices.claim`."""


def _forwarded(name: str) -> Callable[..., Any]:
    def forward(port: Port, *args: Any, **kwargs: Any) -> Any:
        return port.call(name, args, kwargs)

    return forward


def _delayed(effect: Callable[[], Any], delay: Callable[[], None], *, after: bool) -> Any:
    if not after:
        delay()
        return effect()
    try:
        return effect()
    finally:
        delay()
