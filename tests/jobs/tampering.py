"""Rows changed behind Instep's back, by the means of any target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from instep.container import Container
from instep.domain.identity import content_hash
from instep.domain.refs import PartitionRef
from instep.entities.documents.setup import DocumentSetup
from instep.targets.document_target import SEARCHED, ChunkChanges, existing_schema, row_schema
from tests.jobs.projects import Home

Row = dict[str, Any]


class Tamperer:
    """Changes what is served of a partition, which is idle, under the epoch that has it."""

    def __init__(self, place: Home, ref: str = "Document") -> None:
        container = Container(place.open().project)
        with closing(container), closing(container.ledger(read_only=True)) as ledger:
            checkpoint = ledger.checkpoints.get(PartitionRef(ref))
            job = ledger.jobs.get(checkpoint.job_id) if checkpoint else None
            assert checkpoint is not None
            assert job is not None
            (setup,) = container.documents([ref])
            self._epoch = job.part(PartitionRef(ref)).part.epoch
        assert isinstance(setup, DocumentSetup)
        self._setup = setup
        self.target = setup.target
        self.physical = checkpoint.physical
        self.manifest = checkpoint.instance
        self._attempts = 0

    def rows(self) -> list[Row]:
        return [row for batch in self.target.contents(self.physical) for row in batch.to_pylist()]

    def change(self, document_id: str, changed: Callable[[Row], Sequence[Row]]) -> None:
        """Have each row of a document become others."""
        before = [row for row in self.rows() if row["document_id"] == document_id]
        self._commit(document_id, [new for row in before for new in changed(row)])

    def add(self, *rows: Row) -> None:
        """Beside what is there."""
        self._commit(None, rows)

    def _commit(self, replaced: str | None, rows: Sequence[Row]) -> None:
        base = self.target.fence(self.physical, self._epoch)
        writer = self.target.writer(self.physical, base)
        stale = writer.existing([replaced]) if replaced else existing_schema().empty_table()
        kept = pa.array([row["chunk_id"] for row in rows], pa.string())
        if self.target.kind == "idempotent":  # What is rewritten under its id is not to be removed.
            stale = stale.filter(pc.invert(pc.is_in(stale["chunk_id"], value_set=kept)))
        schema = row_schema(self._setup.dimensions)
        made = pa.RecordBatch.from_pylist([self._whole(row) for row in rows], schema=schema)
        staged = writer.stage(iter([ChunkChanges(made, stale)]))
        self._attempts += 1
        attempt = f"tampered {self._attempts}"
        self.target.commit(self.physical, base=base, epoch=self._epoch, attempt=attempt, staged=[staged], marks=[])

    def _whole(self, row: Row) -> Row:
        vector = [1.0] * self._setup.dimensions
        rest = {
            "title": None,
            "text": "?",
            "vector": vector,
            SEARCHED: "",
            "_ref": "?",
            "_instance": "?",
            "_version": self._epoch,
        }
        return {**rest, **row}


def altered(row: Row) -> list[Row]:
    return [row | {"chunk_hash": content_hash(b"altered")}]


def stranger(uri: str = "file:///stranger") -> Row:
    """A row of a document that was not indexed."""
    return {
        "document_id": "stranger",
        "document_hash": "?",
        "source_uri": uri,
        "source_version": "?",
        "chunk_id": content_hash(b"stranger"),
        "chunk_hash": content_hash(b"?"),
        "chunk_index": 0,
    }
