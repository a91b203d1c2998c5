"""The services that every use case about jobs needs besides the entities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from instep.bus.status_reporter import StatusReporter
from instep.domain.clock import Background, Clock, Ids, Timing
from instep.domain.refs import PartitionRef
from instep.domain.requests import Group
from instep.entities.setup import EntitySetup
from instep.ledger.ledger import Ledger
from instep.ledger.liveness import Liveness
from instep.pipeline.engine.choice import EngineChoice
from instep.pipeline.engine.engine import Engine
from instep.planning.choosing import Choose
from instep.planning.contacts import Contacts, Unasked
from instep.planning.loaded import Loaded
from instep.telemetry.progress import Counters, Progress, Uncounted


@dataclass(frozen=True, slots=True)
class Context:
    """The services of a use case. `random` gives jitter: numbers from 0 up to, not including, 1. `choose` picks the
    engine for an amount of work, `engine` starts or returns it; `prepare` starts the engine early if only one is
    possible.
    """

    ledger: Ledger
    clock: Clock
    ids: Ids
    background: Background
    random: Callable[[], float]
    timing: Timing
    liveness: Liveness
    progress: Progress
    status_reporter: StatusReporter
    choose: Choose
    engine: Callable[[EngineChoice], Engine]
    prepare: Callable[[EntitySetup], None]
    counters: Counters = field(default_factory=Uncounted)
    contacts: Contacts = field(default_factory=Unasked)
    #: When indexes that were replaced were last looked for, by alias (seconds of the clock).
    swept: dict[str, float] = field(default_factory=dict)
    #: When large instances were last found to be in their targets as they are recorded (seconds of the clock).
    sound: dict[str, float] = field(default_factory=dict)
    #: When this process loaded its code; None where that is not known, and whatever was built may be replaced.
    loaded: Loaded | None = None
    #: The group whose limit holds for what workers start or go on with there by themselves.
    group: Callable[[PartitionRef], Group | None] = lambda _: None
    #: The partitions that a name means. Raises `UserError` for one that the project does not declare.
    named: Callable[[str], Sequence[PartitionRef]] = lambda name: [PartitionRef.parse(name)]
    #: The workers that this process has registered, in whichever thread.
    own_workers: set[str] = field(default_factory=set)
    #: Seconds of CPU that the driver has used by now; None where tasks do not run elsewhere.
    driver_cpu: Callable[[], float | None] = lambda: None
    #: How long (ms) what has ended is kept; 0: for ever.
    retention: int = 0
    #: Whether the run is to stop; it looks before each wave.
    stops: Callable[[], bool] = lambda: False
