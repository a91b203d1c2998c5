"""What `bench.vectors` needs of a vector database: itself as a target of Instep, and as its own client fills it.

`bench.pgvector`, `bench.qdrant` and `bench.milvus` have one each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import pyarrow as pa

from instep.targets.document_target import DocumentTarget

DIMENSIONS = 384

#: Documents that a client deletes at once.
DELETED_AT_ONCE = 1_000


class Side(Protocol):
    """The client's calls get rows of `row_schema` that lie ready in memory. All it makes is as a reader wants it:
    the same columns and the same indexes as Instep's.
    """

    name: str

    def declared(self) -> dict[str, Any]:
        """The target, as a project has it."""

    def target(self) -> DocumentTarget: ...

    def forget(self) -> None:
        """Everything that either of the two made."""

    def settle(self) -> None:
        """Before something is timed: nothing of what was done earlier is left for the server to do."""

    def insert(self, rows: Iterable[pa.RecordBatch]) -> None: ...

    def index(self) -> None:
        """What Instep's target does in `refine`."""

    def update(self, rows: Iterable[pa.RecordBatch], gone: Sequence[str]) -> None:
        """Rows in place of those with their chunk ids, and chunk ids that go."""

    def delete(self, document_ids: Sequence[str]) -> None: ...

    def rows(self) -> int:
        """In the client's own table."""

    def close(self) -> None: ...
