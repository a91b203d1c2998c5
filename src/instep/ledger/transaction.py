"""Transactions in a ledger's database, and what each store is: methods that are one transaction each."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from instep.domain.clock import Timing
from instep.domain.retries import Backoff
from instep.errors import Transient
from instep.ledger.dialects.dialect import Collision, SqlDialect

if TYPE_CHECKING:
    from instep.ledger.recent_entries import Written

T = TypeVar("T")
P = ParamSpec("P")

#: For engines whose connections commit each statement by themselves: execution options of those that must not.
IN_TRANSACTION: Final[dict[str, Any]] = {"isolation_level": "READ COMMITTED"}

#: How often a transaction that collided with another is tried, and how long it pauses in between.
_TRIES: Final = 6
_PAUSES: Final = Backoff(0.005, 0.2, random.random, "full")

#: Databases bound the number of parameters of one statement.
_BATCH: Final = 1_000


@dataclass(slots=True)
class Transaction:
    """A transaction: its connection, and what the functions of the other modules need besides."""

    connection: Connection
    dialect: SqlDialect
    timing: Timing
    #: The last event before those that it appended, and the last of these.
    appended: tuple[int, int] = (0, 0)
    #: What it wrote to manifests.
    written: list[Written] = field(default_factory=list)
    _now: int | None = None

    def now(self) -> int:
        """The ledger's clock, asked once: the same moment in all of the transaction."""
        if self._now is None:
            self._now = self.dialect.now(self.connection)
        return self._now


class Database:
    """Runs work in transactions. May be shared by threads. `committed` is called after each that may have written."""

    def __init__(
        self, engine: Engine, dialect: SqlDialect, timing: Timing, committed: Callable[[Database, Transaction], None]
    ) -> None:
        self._reader = engine
        self._writer = engine.execution_options(write=True, **(IN_TRANSACTION if dialect.autocommit else {}))
        # For what is one statement: a write only where a statement is not a transaction of its own.
        self._single = engine.execution_options() if dialect.autocommit else self._writer
        # All statements of a transaction see the same moment; on SQLite they do anyway.
        is_server = engine.dialect.name != "sqlite"
        self._steady = engine.execution_options(isolation_level="REPEATABLE READ") if is_server else engine
        self._dialect = dialect
        self._timing = timing
        self._committed = committed

    def close(self) -> None:
        self._reader.dispose()

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work`, which only reads."""
        return self._run(self._reader, work)

    def read_steadily(self, work: Callable[[Transaction], T]) -> T:
        """Run `work`, which only reads; all of its statements see the same moment."""
        return self._run(self._steady, work)

    def write(self, work: Callable[[Transaction], T]) -> T:
        done: list[Transaction] = []

        def noted(tx: Transaction) -> T:
            done[:] = [tx]
            return work(tx)

        result = self._run(self._writer, noted)
        self._committed(self, done[0])
        return result

    def write_at_once(self, work: Callable[[Transaction], T]) -> T:
        """Run a write that is one statement, without BEGIN and COMMIT where a statement is a transaction."""
        return self._run(self._single, work)

    def _run(self, engine: Engine, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a transaction; again when it collided with another one, and so had no effect.

        Two that insert the same row collide too: the second then finds what the first one made.
        """
        for tried in range(1, _TRIES):
            try:
                return self._once(engine, work)
            except (Collision, IntegrityError):
                time.sleep(_PAUSES.pause(tried))
        return self._once(engine, work)

    def _once(self, engine: Engine, work: Callable[[Transaction], T]) -> T:
        # With autocommit every statement is its own commit.
        alone = engine is self._single and self._dialect.autocommit
        committing = False
        try:
            with engine.connect() as connection, nullcontext() if alone else connection.begin():
                committing = alone
                result = work(Transaction(connection, self._dialect, self._timing))
                committing = engine is not self._reader and engine is not self._steady
        except DBAPIError as error:
            known = self._dialect.explain(error, committing=committing)
            if known is None:
                raise
            raise known from error
        except PoolTimeout as error:
            raise Transient("the ledger has no free connection") from error
        return result


class Store:
    """The base of the ledger's stores. A method's body is the transaction that `reads` or `writes` gives it."""

    def __init__(self, database: Database) -> None:
        self._database = database


S = TypeVar("S", bound=Store)


def reads(method: Callable[Concatenate[S, Transaction, P], T]) -> Callable[Concatenate[S, P], T]:
    """Call the method in a transaction that only reads."""

    @wraps(method)
    def called(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._database.read(lambda tx: method(self, tx, *args, **kwargs))

    return called


def writes(method: Callable[Concatenate[S, Transaction, P], T]) -> Callable[Concatenate[S, P], T]:
    """Call the method in a transaction."""

    @wraps(method)
    def called(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._database.write(lambda tx: method(self, tx, *args, **kwargs))

    return called


def writes_at_once(method: Callable[Concatenate[S, Transaction, P], T]) -> Callable[Concatenate[S, P], T]:
    """Call the method, at most one statement of which writes, without BEGIN and COMMIT where that is a transaction."""

    @wraps(method)
    def called(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._database.write_at_once(lambda tx: method(self, tx, *args, **kwargs))

    return called


@contextmanager
def uncollected() -> Iterator[None]:
    """Many rows are made in here, none of which is in a cycle. Python's collector would look at them again and again,
    which takes longer than making them.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def batches(values: Iterable[T]) -> Iterator[list[T]]:
    every = list(values)
    for start in range(0, len(every), _BATCH):
        yield every[start : start + _BATCH]
