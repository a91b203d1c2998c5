"""The work of tasks that plan a corpus on Spark: list rows, and compare a part of them.

Parts are ranges of document ids (`document_state.corpus_parts`), so that what belongs to one part is found without the
others, and the changes of all parts, one part after the other, are in the order of their ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from instep.document_state.columns import ChangeColumns, ListedColumns
from instep.document_state.corpus_parts import bounds, parts_of
from instep.document_state.difference import ENTRY, RECORDED, Record, difference
from instep.document_state.identities import heads_of
from instep.document_state.losses import failing, tally
from instep.document_state.pieces import Recorded, read_whole, write_whole
from instep.domain.manifest import Action
from instep.domain.promotion_rules import Tally
from instep.domain.texts import amount
from instep.pipeline.documents.stored_changes import PartFile, Workspace, write_part
from instep.sources.tables.row_documents import named_schema

#: Rows of a part that were listed together, as a batch of `HEADED`; none, so that a task comes to that part.
#: `problems`: not all could be listed; one part is told why.
LISTED: Final = pa.schema(dict[str, pa.DataType](part=pa.int32(), rows=pa.binary(), problems=pa.list_(pa.string())))
#: `head`: the beginning of the document's id, in whose order the rows are.
HEADED: Final = named_schema().append(pa.field("head", pa.uint64()))
#: Rows that are told apart by part at once.
_TOGETHER: Final = 200_000
#: The numbers of a `Difference`.
SUMS: Final = ("unchanged", "known_failures", "recorded", "gone", "lost")
#: Problems of a listing: whether a part was told of some (1), and what they are if it was told this.
_PROBLEMS: Final = dict[str, pa.DataType](incomplete=pa.int64(), problems=pa.list_(pa.string()))
#: What was found in a part, and the file that has its changes.
FOUND: Final = pa.schema(
    dict.fromkeys(("part", "listed", "orphans", *SUMS, *map(str, Action)), pa.int64())
    | dict.fromkeys(("file", "buckets"), pa.string())
    | _PROBLEMS
)
#: A part, and the file that has its rows (`HEADED`), if it has some.
KEPT: Final = pa.schema(dict[str, pa.DataType](part=pa.int64(), file=pa.string()) | _PROBLEMS)
ROWS: Final = ".rows"
#: The numbers of a part by which a build is judged.
TALLIED: Final = pa.schema(dict.fromkeys(Tally._fields, pa.int64()))
#: Problems of a task that are told one by one.
_TOLD: Final = 20


class Corpus(Protocol):
    """A source whose rows tasks list. Picklable."""

    def named(self, batch: pa.RecordBatch, member: int = 0) -> pa.RecordBatch:
        """Rows as its member lists them, with the URIs of their documents (`named_schema`)."""

    def documents(self, ordered: pa.Table) -> ListedColumns:
        """The documents of rows (`named_schema`). All rows with one URI are in it, and lie together."""


class _Part(NamedTuple):
    """A part: its rows (`HEADED`), and problems of the listing (None: all was listed)."""

    number: int
    rows: pa.Table
    problems: Sequence[str] | None

    @property
    def told(self) -> dict[str, Any]:
        """For the columns `_PROBLEMS`."""
        return {"incomplete": int(self.problems is not None), "problems": self.problems or ()}


@dataclass(frozen=True)
class Comparison:
    """Compares the rows of a source with what is recorded of its documents. Picklable: its methods run in tasks.

    `failed` has the failures of each part, as `difference` takes them.
    """

    source: Corpus
    recorded: Recorded | None
    failed: Mapping[int, Mapping[str, str]]
    parts: int
    buckets: int
    retry_failures: bool
    folder: Path
    #: What is not listed counts as gone, though not all could be listed: a build would leave it out.
    of_build: bool = False

    def listed(self, rows: Iterable[pa.RecordBatch], member: int = 0) -> Iterator[pa.RecordBatch]:
        """Rows as a table of `source.members` lists them become batches of `LISTED`: they cross the JVM packed, a part
        in one value.
        """
        for some in _together(self.source.named(each, member) for each in rows):
            heads = heads_of(some["uri"])
            order = np.argsort(heads, kind="stable")  # Of rows with one key the first one counts.
            heads = heads[order]
            ordered = some.take(_indices(order)).append_column("head", pa.array(heads))
            (whole,) = ordered.cast(HEADED).combine_chunks().to_batches()
            parts = parts_of(heads, self.parts)
            edges = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(parts)]
            shares = [whole.slice(start, stop - start).serialize().to_pybytes() for start, stop in pairwise(edges)]
            numbers: Any = pa.array(parts[edges[:-1]])
            columns = [numbers, pa.array(shares, pa.binary()), pa.nulls(len(shares), LISTED.field("problems").type)]
            yield pa.RecordBatch.from_arrays(columns, schema=LISTED)

    def unlisted(self, problems: Sequence[str]) -> pa.RecordBatch:
        """Tell all parts of problems: of none of them all is listed then, as it is not known what is missing."""
        more = len(problems) - _TOLD
        said = [*problems[:_TOLD], *([f"and {amount(more, 'more problem')} of this kind"] if more > 0 else [])]
        columns: dict[str, Any] = {
            "part": pa.array(range(self.parts), pa.int32()),
            "rows": pa.nulls(self.parts, pa.binary()),
            "problems": pa.array([said, *([()] * (self.parts - 1))], pa.list_(pa.string())),
        }
        return pa.RecordBatch.from_pydict(columns, LISTED)

    def compared(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Compare whole parts: batches of `LISTED` become one row of `FOUND` for each."""
        return map(self._part, self._parts(batches))

    def tallied(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count whole parts: batches of `LISTED` become one row of `TALLIED` for each."""
        for part in self._parts(batches):
            listed = listed_part(self.source, part.rows).table
            known = failing(listed, self.failed.get(part.number, {}))
            counted = tally(self._record(part.number).columns, listed, known)._asdict()
            yield pa.RecordBatch.from_pylist([counted], TALLIED)

    def kept(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Keep whole parts: batches of `LISTED` become files, and one row of `KEPT` for each."""
        for part in self._parts(batches):
            batches_of = part.rows.combine_chunks().to_batches() if part.rows.num_rows else ()
            name = write_whole(self.folder, ROWS, *batches_of) if batches_of else None
            if name or part.problems is not None:
                yield pa.RecordBatch.from_pylist([{"part": part.number, "file": name, **part.told}], KEPT)

    def _parts(self, batches: Iterable[pa.RecordBatch]) -> Iterator[_Part]:
        found: dict[int, list[pa.RecordBatch]] = {}
        told: dict[int, list[str]] = {}
        for batch in batches:
            for part, packed, problems in zip(batch.column(0).to_numpy().tolist(), *batch.columns[1:], strict=True):
                here = found.setdefault(part, [])
                if packed.is_valid:
                    here.append(pa.ipc.read_record_batch(packed.as_buffer(), HEADED))
                if problems.is_valid:
                    told.setdefault(part, []).extend(problems.as_py())
        for part in sorted(found):
            yield _Part(part, pa.Table.from_batches(found.pop(part), HEADED), told.get(part))

    def _part(self, part: _Part) -> pa.RecordBatch:
        listed = listed_part(self.source, part.rows)
        found = difference(
            listed,
            self._record(part.number),
            self.failed.get(part.number, {}),
            complete=self.of_build or part.problems is None,
            buckets=self.buckets,
            retry_failures=self.retry_failures,
        )
        assert isinstance(found.changes, ChangeColumns), "compared in columns"
        file = write_part(self.folder, found.changes.with_ids()) or PartFile("", [])
        actions = found.changes.counts("action")
        row: dict[str, Any] = {"part": part.number, "listed": len(listed), "orphans": listed.orphans, **part.told}
        row |= {name: getattr(found, name) for name in SUMS} | {str(each): actions[str(each)] for each in Action}
        row |= {"file": file.name, "buckets": " ".join(map(str, file.buckets))}
        return pa.RecordBatch.from_pylist([row], FOUND)

    def _record(self, part: int) -> Record:
        if self.recorded is None:
            return Record.nothing()
        entries = self.recorded.between(*bounds(part, self.parts))

        def named(uris: pa.Array[Any]) -> pa.Table:
            return entries.filter(pc.is_in(entries["uri"], value_set=uris)).select(ENTRY)

        return Record(entries.select(RECORDED), named)


class PartRows:
    """Rows of a source in files of their parts; `problems` say what of it could not be listed."""

    def __init__(self, work: Workspace, files: Mapping[int, str], problems: Sequence[str]) -> None:
        self.problems = problems
        self._work, self._files = work, files

    def part(self, number: int) -> pa.Table:
        """The rows of a part (`HEADED`)."""
        file = self._files.get(number)
        return HEADED.empty_table() if file is None else read_whole(self._work.folder, file, ROWS).read_all()

    def close(self) -> None:
        self._files = {}


def listed_part(source: Corpus, rows: pa.Table) -> ListedColumns:
    """The documents of a part, of which these are all rows (`HEADED`), in the order of their ids."""
    return source.documents(by_id(rows).select(named_schema().names).combine_chunks())


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for each in batches:
        held.append(each)
        if sum(one.num_rows for one in held) >= _TOGETHER:
            yield pa.Table.from_batches(held)
            held = []
    if any(each.num_rows for each in held):
        yield pa.Table.from_batches(held)


def by_id(rows: pa.Table) -> pa.Table:
    """Rows with a `head` in the order of ids, as records are: then most comparisons are of columns as a whole."""
    heads = rows["head"].to_numpy()
    order = np.argsort(heads)
    if np.any(heads[order[1:]] == heads[order[:-1]]):  # Rows with one key, as a rule. They have to lie together.
        return rows.sort_by([("head", "ascending"), ("uri", "ascending")])
    return rows.take(_indices(order))


def _indices(order: npt.NDArray[np.int64]) -> Any:
    return pa.array(order)


def problems_of(found: pa.Table) -> list[str]:
    """The problems that parts were told of."""
    told: Any = found["problems"]
    said = dict.fromkeys(each for problems in told.to_pylist() for each in problems)
    if not said and any(found["incomplete"].to_pylist()):
        return ["some of it could not be listed by one of the tasks that tried"]
    return [*said]


def counts_of(found: pa.Table) -> Counter[str]:
    """The sums of what was found in all parts."""
    sums = {each.name: pc.sum(found[each.name]).as_py() or 0 for each in FOUND if pa.types.is_integer(each.type)}
    return Counter({name: int(value) for name, value in sums.items() if name != "part"})
