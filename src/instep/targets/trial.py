"""A trial of a target: an index of its own, to which each of several hosts adds a row, and which is dropped again.

The row takes the way of all rows: a task stages it, the driver commits it, and it is counted. So it shows what a store
that merely answers does not: that what one host puts down is what the others find.
"""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from socket import gethostname
from typing import Any, Final, Self

from instep.domain.columns import STRING, Column
from instep.domain.document_columns import MODIFIED
from instep.domain.refs import index_name
from instep.targets.document_target import ChunkChanges, DocumentTarget, existing_schema, row_schema
from instep.targets.table_target import DELETED, INSTANCE, OWN, REF, VERSION, TableChange, TableSpec, TableTarget

#: The name for which these indexes are made; nothing is ever served under it.
ALIAS: Final = "ExecutorTrial"
#: One of these that is so old was left by a process that was killed.
_LEFT_SECONDS = 86_400.0
_EPOCH = 1
_SPEC = TableSpec(OWN, (Column("executor", STRING),), ("executor",))


@dataclass(frozen=True)
class Trial(ABC):
    """Picklable: tasks `stage` with it."""

    target: Any
    physical: str
    base: int = 0

    def begun(self) -> Self:
        """The trial with its index made. `end` it in any case."""
        for each in self.target.leftovers(ALIAS, idle_seconds=_LEFT_SECONDS):
            self.target.drop(each)
        self._create()
        return replace(self, base=self.target.fence(self.physical, _EPOCH))

    @abstractmethod
    def _create(self) -> None: ...

    @abstractmethod
    def stage(self) -> bytes:
        """Put down one row, named for this process."""

    def commit(self, staged: Sequence[bytes]) -> None:
        self.target.commit(self.physical, base=self.base, epoch=_EPOCH, attempt="trial", staged=staged, marks=[])

    def rows(self) -> int:
        """Rows that are found from here."""
        found: int = self.target.rows(self.physical)
        return found

    def end(self) -> None:
        self.target.drop(self.physical)


@dataclass(frozen=True)
class DocumentTrial(Trial):
    dimensions: int = 1

    def _create(self) -> None:
        self.target.create(self.physical, self.dimensions, 1)

    def stage(self) -> bytes:
        import pyarrow as pa

        row: dict[str, Any] = dict.fromkeys(row_schema(1).names, _here())
        row |= {MODIFIED.name: None, "chunk_index": 0, "vector": [1.0] + [0.0] * (self.dimensions - 1), VERSION: _EPOCH}
        rows = pa.RecordBatch.from_pylist([row], schema=row_schema(self.dimensions))
        writer = self.target.writer(self.physical, self.base)
        found: bytes = writer.stage(iter([ChunkChanges(rows, existing_schema().empty_table())]))
        return found


@dataclass(frozen=True)
class TableTrial(Trial):
    def _create(self) -> None:
        self.target.create(self.physical, [_SPEC])

    def stage(self) -> bytes:
        import pyarrow as pa

        here = [_here()]
        rows = pa.RecordBatch.from_pydict(
            {"executor": here, REF: here, INSTANCE: here, VERSION: [_EPOCH], DELETED: [False]}
        )
        found: bytes = self.target.writer(self.physical, self.base).stage(iter([TableChange(OWN, rows)]))
        return found


def trial_of_documents(target: DocumentTarget, dimensions: int) -> Trial:
    return DocumentTrial(target, _name(target), dimensions=dimensions)


def trial_of_tables(target: TableTarget) -> Trial:
    return TableTrial(target, _name(target))


def _name(target: DocumentTarget | TableTarget) -> str:
    return index_name(ALIAS, target.owner.id, uuid.uuid4().hex)


def _here() -> str:
    return f"{gethostname()}-{os.getppid()}"
