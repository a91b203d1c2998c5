"""Documents that are rows of a table with rows of other tables: a ticket with its comments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from instep.document_state.columns import ListedColumns
from instep.domain.columns import ColumnType, TypeName
from instep.domain.rows import ChildColumns
from instep.errors import UserError
from instep.sources.document_source import Answer, TooLarge
from instep.sources.tables.row_documents import FoundRows, Member, RowDocuments, sound

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class JoinedDocuments(RowDocuments):
    """Implements `sources.document_source.DocumentSource`. `joined` are the other tables, `children` their columns. A
    document of more than `most` bytes is never put together.
    """

    children: tuple[ChildColumns, ...]
    joined: tuple[Member, ...]
    most: int

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "joined": ()}

    @property
    def members(self) -> tuple[Member, ...]:
        return (*super().members, *self.joined)

    @property
    def text(self) -> str:
        return ", ".join(each.table.text for each in self.members)

    def check(self) -> None:
        own = self.table.key_types(self.columns)
        for child, member in zip(self.children, self.joined, strict=True):
            types = member.table.key_types(member.columns)
            for parent, name, mine, theirs in zip(self.columns.key, child.columns.key, own, types, strict=False):
                if _of_number(mine) != _of_number(theirs):
                    raise UserError(
                        f"{name!r} is {theirs}, and {parent!r} of the documents, which it names, is {mine}",
                        where=f"document.with.{child.name}: {member.table.text}",
                        hint="Make them of one type, such as by a CAST in `sql`.",
                    )

    def named(self, batch: pa.RecordBatch, member: int = 0) -> pa.RecordBatch:
        if not member:
            return super().named(batch)
        from instep.sources.tables.joined_rows import child_facts

        child = self.children[member - 1]
        *keys, versions, sizes = batch.columns
        facts = child_facts(child.name, keys[child.keys :], versions)
        rows = batch.from_arrays([*keys[: child.keys], facts, sizes], [f"c{at}" for at in range(child.keys + 2)])
        return super().named(rows)

    def documents(self, ordered: pa.Table) -> ListedColumns:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        from instep.sources.tables.joined_rows import are_facts, joined_versions

        child = are_facts(ordered["version"])
        uris: Any = ordered["uri"]
        other = np.asarray(pc.not_equal(uris[1:], uris[:-1]).to_numpy(), np.int64)
        group = np.cumsum(np.append(np.zeros(min(1, len(uris)), np.int64), other))
        own, theirs = ordered.filter(pa.array(~child)), ordered.filter(pa.array(child))
        places = np.full(len(uris), -1, np.int64)
        places[group[~child]] = np.arange(own.num_rows)
        of = places[group[child]]
        some = of >= 0
        facts: Any = theirs["version"].filter(pa.array(some))
        versions = joined_versions(own["version"], of[some], facts)
        mine, sizes = own["size"].to_numpy(), theirs["size"].to_numpy()[some]
        more = np.bincount(of[some], np.abs(sizes) + 1, own.num_rows).astype(np.int64)
        # With what stands between the texts a document is larger: it is an estimate.
        columns: list[Any] = [own["uri"], versions, pa.array(np.where(more > 0, -np.abs(mine) - more, mine))]
        joined = pa.Table.from_arrays(columns, schema=own.schema)
        return ListedColumns(super().documents(joined).table, orphans=int(np.sum(~some)))

    def looked_up(self, uris: pa.ChunkedArray[Any], flaws: pa.ChunkedArray[Any]) -> Iterator[FoundRows]:
        from instep.sources.tables.joined_rows import JoinedSpool

        with JoinedSpool(self.entity, self.columns, self.children, self.most) as spool:
            sought = uris.filter(sound(flaws))
            keys = self._keys(sought)
            for each, member in zip(spool.members, self.members, strict=True):
                each.keep(member.table.rows(member.columns, keys) if keys else (), sought)
            yield from spool.found(uris)

    def contents_of(self, said: pa.RecordBatch, *, max_bytes: int) -> Iterator[Answer]:
        from instep.sources.tables.joined_rows import SIZE

        answers = super().contents_of(said, max_bytes=max_bytes)
        sizes: list[Any] = said[SIZE].to_pylist()
        for answer, size in zip(answers, sizes, strict=True):
            yield answer if size <= min(max_bytes, self.most) else TooLarge(size)


def _of_number(kind: ColumnType) -> ColumnType:
    """Whole numbers name the same whatever their length."""
    return replace(kind, name=TypeName.INT64) if kind.name is TypeName.INT32 else kind
