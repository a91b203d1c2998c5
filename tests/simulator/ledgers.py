"""Ledgers in databases, one for many schedules: emptied for each, and with that schedule's clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from sqlalchemy import Engine, text

from instep.domain.clock import Clock
from instep.domain.timing import TIMING, Timing
from instep.ledger.open import open_ledger
from instep.ledger.port import Ledger
from instep.ledger.schema import begin
from instep.ledger.sqlite import sqlite_engine
from instep.ledger.tables import metadata

from .scheduler import LedgerClock, Scheduler
from .simulation import Chance, Product


class Handed:
    """Implements `domain.clock.Clock` by that of the schedule that goes on."""

    def __init__(self) -> None:
        self.clock: Clock = LedgerClock(Scheduler(Chance(Random(0), 0.0)))

    def now(self) -> int:
        return self.clock.now()

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)


class Kept:
    """A ledger that stays open, as a `simulation.Product` makes it: `empty` clears the database."""

    def __init__(self, make: Callable[[Clock], Ledger], empty: Callable[[], None]) -> None:
        self._clock = Handed()
        self._empty = empty
        self.ledger = make(self._clock)
        self.product = Product(ledger=self._hand)

    def _hand(self, clock: LedgerClock, timing: Timing) -> Ledger:
        assert timing == TIMING, "the ledger was made with these"
        self._empty()
        self._clock.clock = clock
        return self.ledger


def sqlite_kept(folder: Path) -> Kept:
    """In a file without waiting for a disk: what is simulated is not a power cut."""
    path = folder / "simulated.db"
    ledger = open_ledger(f"sqlite:///{path}", clock=Handed())
    ledger.close()
    engine = sqlite_engine(path)
    return Kept(lambda clock: open_ledger(f"sqlite:///{path}", clock=clock), lambda: empty(engine))


def empty(engine: Engine) -> None:
    with engine.execution_options(write=True).begin() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(text(f"DELETE FROM {table.name}"))
        begin(connection)


def server_kept(name: str) -> Kept:
    """On a real PostgreSQL or MariaDB that tests bring up; the clock is the schedule's."""
    from tests.servers.ledgers import mariadb_ledger, postgres_ledger

    database = {"postgresql": postgres_ledger, "mariadb": mariadb_ledger}[name]()
    database.empty()
    return Kept(lambda clock: database.open(clock=clock), database.empty)
