"""One transaction: its connection, and what the functions of the other modules need besides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sqlalchemy import Connection

from instep.domain.clock import Timing
from instep.ledger.dialects.dialect import SqlDialect

T = TypeVar("T")

#: For engines whose connections commit each statement by themselves: execution options of those that must not.
IN_TRANSACTION: Final[dict[str, Any]] = {"isolation_level": "READ COMMITTED"}

#: Databases bound the number of parameters of one statement.
_BATCH: Final = 1_000


@dataclass(slots=True)
class Transaction:
    connection: Connection
    dialect: SqlDialect
    timing: Timing
    #: The last event before those that it appended, and the last of these.
    appended: tuple[int, int] = (0, 0)
    _now: int | None = None

    def now(self) -> int:
        """The ledger's clock, asked once: the same moment in all of the transaction."""
        if self._now is None:
            self._now = self.dialect.now(self.connection)
        return self._now


def batches(values: Iterable[T]) -> Iterator[list[T]]:
    every = list(values)
    for start in range(0, len(every), _BATCH):
        yield every[start : start + _BATCH]
