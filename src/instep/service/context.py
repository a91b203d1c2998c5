"""What every use case that works on jobs needs besides the entities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from instep.domain.clock import Background, Clock, Ids
from instep.domain.timing import Timing
from instep.engine.choice import EngineChoice
from instep.engine.port import Engine
from instep.ledger.port import Ledger
from instep.service.liveness import Liveness
from instep.service.progress import Progress
from instep.service.setup import EntitySetup
from instep.service.standing import Standing
from instep.telemetry.counters import Counters, Uncounted


@dataclass(frozen=True, slots=True)
class Context:
    """`random` gives jitter: numbers from 0 up to, not including, 1. `choose` says which engine suits an
    amount of work, `engine` starts or hands it out; `prepare` starts the one that is certain before
    anything is known of the work, if there is one.
    """

    ledger: Ledger
    clock: Clock
    ids: Ids
    background: Background
    random: Callable[[], float]
    timing: Timing
    liveness: Liveness
    progress: Progress
    standing: Standing
    choose: Callable[[EntitySetup, int], EngineChoice]
    engine: Callable[[EngineChoice], Engine]
    prepare: Callable[[EntitySetup], None]
    counters: Counters = field(default_factory=Uncounted)
