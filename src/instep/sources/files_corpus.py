"""Files in S3 that tasks list, and compare in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.document_state.columns import ListedColumns, listed_schema
from instep.domain.manifest import SourceDocument
from instep.sources.files import FilesPortion, FilesSource
from instep.sources.tables.row_documents import named_schema

#: Portions that are enough to keep tasks busy until the last one ends.
_ENOUGH: Final = 256
#: Documents that are Python objects at once.
_AT_ONCE: Final = 10_000


@dataclass(frozen=True)
class FilesCorpus:
    """Implements `pipeline.documents.corpus.Corpus`. Picklable: tasks list its portions."""

    source: FilesSource

    def portions(self) -> Sequence[FilesPortion]:
        """All of it. Raises `UserError` when a root is missing."""
        return self.source.portions(_ENOUGH)

    def listed(self, portions: Iterable[FilesPortion], problem: Callable[[str], None]) -> Iterator[pa.RecordBatch]:
        """List portions (`named_schema`); `problem` is told what of them cannot be listed."""
        documents = (each for portion in portions for each in self.source.portion(portion, problem))
        while some := list(islice(documents, _AT_ONCE)):
            yield _columns(some)

    def named(self, batch: pa.RecordBatch, member: int = 0) -> pa.RecordBatch:
        """They have names when they are listed."""
        return batch

    def documents(self, ordered: pa.Table) -> ListedColumns:
        """A file under two roots once. All rows with one URI are in it, and lie together."""
        uris: Any = ordered["uri"]
        other: Any = pc.not_equal(uris[1:], uris[:-1])
        if not pc.all(other, min_count=0).as_py():
            starts: Any = pa.array(np.append(0, np.flatnonzero(other.to_numpy()) + 1))
            ordered = ordered.take(starts)
        columns: list[Any] = [ordered["uri"], ordered["size"], ordered["version"], pa.repeat("", ordered.num_rows)]
        return ListedColumns(pa.Table.from_arrays(columns, schema=listed_schema()))


def _columns(documents: Sequence[SourceDocument]) -> pa.RecordBatch:
    uris, sizes, versions, _ = (pa.array(each) for each in zip(*documents, strict=True))
    return pa.RecordBatch.from_arrays([uris, versions, sizes], schema=named_schema())
