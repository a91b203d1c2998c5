"""A wave of documents that are rows of a table with rows of other tables.

On Spark each table is scanned once, and the changes are broadcast to its rows. Those that are needed are brought
together by their documents, so that each document has one writer; a task keeps them on its disk, as this process does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, cast

from instep.domain.waves import Wave
from instep.pipeline.documents.row_program import RowProgram, beside_changes, with_keys
from instep.sources.tables.joined_documents import JoinedDocuments

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from instep.sources.tables.table_source import Sessions

#: The column that says of which table a row is.
_MEMBER: Final = "member"


@dataclass(frozen=True)
class JoinedProgram(RowProgram):
    """Implements `pipeline.engine.engine.RowProgram`. Its `source` is `JoinedDocuments`."""

    @property
    def _joined(self) -> JoinedDocuments:
        return cast(JoinedDocuments, self.source)

    def changed_rows(self, spark: Sessions, wave: Wave, name: str) -> DataFrame:
        """See the port. A row is beside the change of its document; of its own columns each has the number of its table
        before its name.
        """
        from pyspark.sql.functions import lit

        from instep.sources.tables.spark_rows import document_types, rows_of_keys

        source = self._joined
        source.check()
        types = document_types(self._frames, spark, source.columns)
        named = len(source.columns.key)
        changes, keys = with_keys(wave, [types[each] for each in source.columns.key], name)
        frames = []
        for number, member in enumerate(source.members):
            assert member.frames is not None, "a table that Spark scans"
            found = rows_of_keys(member.frames, spark, member.columns, keys)
            rows = beside_changes(found, changes, named, name).withColumn(_MEMBER, lit(number))
            own = {each: f"{number}_{each}" for each in found.columns[named:]}
            frames.append(rows.withColumnsRenamed(own))
        every = reduce(lambda every, one: every.unionByName(one, allowMissingColumns=True), frames)
        return every.repartition(f"{name}_document_id")

    def read_rows(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """See the port."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from instep.pipeline.documents.rows import CHANGE_SCHEMA
        from instep.sources.tables.joined_rows import JoinedSpool

        source, own = self._joined, len(CHANGE_SCHEMA)
        found: list[pa.RecordBatch] = []
        with JoinedSpool(source.entity, source.columns, source.children, source.most) as spool:
            for batch in rows:
                changes = pa.RecordBatch.from_arrays(batch.columns[:own], schema=CHANGE_SCHEMA)
                for number, each in enumerate(spool.members):
                    mine: Any = pc.equal(batch[_MEMBER], pa.scalar(number, pa.int32()))
                    if not mine.true_count:
                        continue
                    names = [name for name in batch.schema.names if name.startswith(f"{number}_")]
                    each.put(changes["uri"].filter(mine), batch.select(names).filter(mine))
                    if number == 0:
                        found.append(changes.filter(mine))
            for each in spool.members:
                each.seal()
            for some in _once(found):
                yield from self.row_reader.rows_found(some, spool.found(pa.chunked_array([some["uri"]])))


def _once(changes: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put changes into one batch, if there are any: each once, though its document may have several rows."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    table = pa.Table.from_batches(changes).combine_chunks() if changes else None
    if table is not None and table.num_rows:
        coded: Any = pc.dictionary_encode(table["uri"].combine_chunks())
        _, first = np.unique(coded.indices.to_numpy(), return_index=True)
        chosen: Any = pa.array(np.sort(first))
        yield from table.take(chosen).combine_chunks().to_batches()
