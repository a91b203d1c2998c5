"""Reconcile: compare keys and versions of a table with its index, and plan a job that repairs what differs.

This sees what no watermark can tell: rows that are deleted for good in the source, rows that came later than the lag,
and whatever an index has lost. No other columns are read (`pipeline.tables.key_comparison`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from instep.domain.cuts import KeyRange
from instep.domain.jobs import JobPart, SlicePlan
from instep.domain.keys import Key, key_of
from instep.domain.promotion_rules import NO_LOSS, Loss
from instep.domain.refs import PartitionRef
from instep.domain.rows import GoneRow, Repair, RowSlice, decode_row_slice, encode_row_slice
from instep.domain.texts import amount
from instep.entities.generations import built, demand_rest
from instep.entities.plan_request import Found, Kind, Planned, PlanRequest
from instep.entities.tables.adapters import TableAdapters
from instep.entities.tables.guarding import refused
from instep.entities.tables.key_sides import (
    in_scope,
    key_reader,
    outside_side,
    rows_of_others,
    source_side,
    target_side,
)
from instep.errors import UserError
from instep.ledger.ledger import Ledger
from instep.targets.table_target import OWN, VERSION, spec_of

if TYPE_CHECKING:
    import pyarrow as pa

    from instep.pipeline.tables.key_comparison import Compared, Sums
    from instep.pipeline.tables.sides import KeyReader, Side


class TooMuchDiffers(UserError):
    """So much differs that a rebuild is quicker than a repair."""


#: Rows of ranges that differ which are in memory at once, of both sides.
_MOST_ROWS: Final = 4_000_000
#: Rows that one job repairs; with more of them a rebuild is quicker.
_MOST_REPAIRS: Final = 200_000
_SLICE_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The differences of one generation of a partition. `rows` are those of the index, `keys` those of the source.

    Keys, as text: of rows that the index lacks (`missing`), that the source has no more (`gone`), that are older in the
    index (`behind`) or later (`ahead`, which nothing but a rebuild mends). `failed` rows are missing, and known to have
    failed. `coming` ones are missing or behind, and above what was seen: the next run reads them anyway. `wanted` and
    `deleted` are what a repair would read and delete.
    """

    ref: PartitionRef
    generation: str
    target: str
    physical: str
    rows: int
    keys: int
    missing: Sequence[str]
    gone: Sequence[str]
    behind: Sequence[str]
    ahead: Sequence[str]
    failed: int
    coming: int
    wanted: Sequence[Key]
    deleted: Sequence[GoneRow]

    @property
    def counts(self) -> dict[str, int]:
        return {
            "missing": len(self.missing),
            "gone": len(self.gone),
            "behind": len(self.behind),
            "ahead": len(self.ahead),
        }

    @property
    def differs(self) -> bool:
        return any(self.counts.values())

    @property
    def mendable(self) -> bool:
        return bool(self.wanted or self.deleted)


def reconcile(setup: TableAdapters, ledger: Ledger, generation: str) -> Reconciled:
    """Compare. Raises `UserError` when nothing is built, or too much differs, and `Away` when a job changes the index
    during the comparison. Writes nothing.
    """
    checkpoint = built(ledger, setup.ref, generation)
    demand_rest(setup, ledger, checkpoint)
    reader = key_reader(setup)
    source, target = source_side(setup, reader), target_side(setup, checkpoint.physical, reader)
    outside = outside_side(setup, ledger, reader)
    # The index first: what comes into it in between is in the source, too.
    stored = target.sums()
    there = source.sums()
    for each in _overtaken(source, there, outside) if outside else ():
        there.leave_out(each)
    ranges = stored.differing(there)
    number = stored.in_ranges(ranges) + there.in_ranges(ranges)
    if number > _MOST_ROWS:
        raise TooMuchDiffers(
            f"{setup.ref}: so much differs that {number:,} rows would have to be compared one by one",
            hint="Bring it up to date first: instep run. If it differs as much then: instep run --full-refresh",
        )
    found = _compared(source, target, outside, ranges)
    demand_rest(setup, ledger, checkpoint)
    failing = set(ledger.failures.versions(setup.ref, generation))
    texts = {name: _texts(rows) for name, rows in found._asdict().items()}
    missing = [(text, at) for at, text in enumerate(texts["missing"]) if not _has_failed(setup, text, failing)]
    seen = ledger.seen.get(checkpoint)
    floor = None if seen is None or seen.files is not None else seen.floor
    wanted = [found.missing.take([at for _, at in missing]) if missing else found.missing.slice(0, 0), found.behind]
    return Reconciled(
        ref=setup.ref,
        generation=generation,
        target=setup.target_name,
        physical=checkpoint.physical,
        rows=int(stored.rows.sum()),
        keys=int(there.rows.sum()),
        missing=[text for text, _ in missing],
        gone=texts["gone"],
        behind=texts["behind"],
        ahead=texts["ahead"],
        failed=len(texts["missing"]) - len(missing),
        coming=sum(_above(each, floor) for each in wanted),
        wanted=sorted(key for each in wanted for key in _keys(each)),
        deleted=_gone(setup, checkpoint.physical, reader, found.gone),
    )


def _overtaken(source: Side, there: Sums, outside: Side) -> Iterator[pa.Table]:
    """The rows of which there is a later version outside. Of the smaller side a portion is in memory at a time, with
    what the other has of the same keys.
    """
    from instep.pipeline.tables.key_comparison import in_ranges, overtaken, with_keys_of

    away = outside.sums()
    if away.rows.sum() < there.rows.sum():
        for ranges in away.in_portions(_MOST_ROWS):
            later = outside.rows(in_ranges(ranges))
            rows = source.rows(with_keys_of(later))
            yield overtaken(rows, later)
        return
    for ranges in there.in_portions(_MOST_ROWS) if away.rows.any() else ():
        rows = source.rows(in_ranges(ranges))
        yield overtaken(rows, outside.rows(with_keys_of(rows)))


def _compared(source: Side, target: Side, outside: Side | None, ranges: Sequence[int]) -> Compared:
    from instep.pipeline.tables.key_comparison import compare_rows, in_ranges, not_overtaken, with_keys_of

    kept = in_ranges(ranges)
    theirs, ours = target.rows(kept), source.rows(kept)
    if outside is not None:
        ours = not_overtaken(ours, outside.rows(with_keys_of(ours)))
    return compare_rows(ours, theirs)


def _gone(setup: TableAdapters, physical: str, reader: KeyReader, rows: pa.Table) -> list[GoneRow]:
    """Look up in the index what a deletion needs of each row: the stored version and the scope."""
    import pyarrow as pa

    if not rows.num_rows:
        return []
    spec = spec_of(setup.target.specs(physical), OWN)
    wanted = rows.select([each.name for each in reader.keys])
    found: list[GoneRow] = []
    for each in in_scope(setup, physical, setup.target.versions(physical)):
        named = pa.Table.from_batches([each])
        joined = named.join(wanted, list(spec.key), [one.name for one in reader.keys], join_type="inner")
        for row in joined.to_pylist():
            path = row[spec.scope] if spec.scope else None
            found.append(GoneRow(key_of(*(row[name] for name in spec.key)), int(row[VERSION]), path))
    return sorted(found)


def not_replaced(setup: TableAdapters, ledger: Ledger, part: JobPart) -> int:
    """The number of rows that another instance wrote and the source has, too; those that failed do not count."""
    import pyarrow as pa

    from instep.pipeline.tables.key_comparison import not_overtaken, with_keys_of

    reader = key_reader(setup)
    stored = rows_of_others(setup, part.physical, part.instance, reader)
    there = source_side(setup, reader).rows(with_keys_of(stored))
    if outside := outside_side(setup, ledger, reader):
        there = not_overtaken(there, outside.rows(with_keys_of(stored)))
    found = pa.Table.from_batches(with_keys_of(there)(iter(stored.to_batches())), stored.schema)
    failing = set(ledger.failures.versions(part.ref, part.generation))
    return sum(not _has_failed(setup, text, failing) for text in _texts(found))


def _keys(rows: pa.Table) -> list[Key]:
    return [key_of(*values) for values in zip(*(each.to_pylist() for each in rows.columns[:-1]), strict=True)]


def _texts(rows: pa.Table) -> list[str]:
    from instep.pipeline.tables.values import row_ids

    ids = row_ids([each.combine_chunks() for each in rows.columns[:-1]])
    return [str(each) for each in ids.to_pylist()]


def _has_failed(setup: TableAdapters, text: str, failing: set[str]) -> bool:
    from instep.pipeline.tables.values import row_uri

    return row_uri(setup.ref.entity, text) in failing


def _above(rows: pa.Table, floor: int | None) -> int:
    return 0 if floor is None else sum(int(each or 0) > floor for each in rows.columns[-1].to_pylist())


def find_repairs(setup: TableAdapters, request: PlanRequest) -> Found:
    """The work of a job that only repairs, as `EntitySetup.find`. Its watermark is that of the served instance."""
    if request.kind is Kind.REBUILD:
        raise UserError(f"{setup.ref} is to be rebuilt, not repaired: {'; '.join(request.why)}", hint="Run: instep run")
    found = reconcile(setup, request.ledger, request.generation)
    if (number := len(found.wanted) + len(found.deleted)) > _MOST_REPAIRS:
        raise TooMuchDiffers(
            f"{setup.ref}: {number:,} rows differ, and one job repairs at most {_MOST_REPAIRS:,}",
            hint="Bring it up to date first: instep run. If it differs as much then: instep run --full-refresh",
        )
    slices = _slices(setup, found)
    why = [f"{number:,} {kind}" for kind, number in found.counts.items() if number]
    planned = [("index", found.missing, "missing"), ("index", found.behind, "behind"), ("delete", found.gone, "gone")]
    return Found(
        kind=Kind.REFRESH if slices else Kind.NOTHING,
        why=why or ["the index has what the source has"],
        unit="row",
        slices=slices,
        counts={**found.counts, "unchanged": found.rows - len(found.gone) - len(found.behind)},
        changes=[Planned(action, key, kind) for action, keys, kind in planned for key in keys],
        state=[repr((each.index, each.payload)) for each in slices],
        blocked=None
        if request.options.allow_deletes
        else refused(setup, request, len(found.deleted), found.rows, "a repair would delete"),
        target=request.checkpoint.watermark if request.checkpoint else None,
        lost=Loss(units=len(found.deleted)) if found.deleted else NO_LOSS,
        warnings=_ahead(setup, found),
    )


def _ahead(setup: TableAdapters, found: Reconciled) -> list[str]:
    if not found.ahead:
        return []
    return [
        f"warning: {amount(len(found.ahead), 'row')} with an earlier {setup.rows.watermark} in the source than in the "
        f"index, such as {found.ahead[0]}: an older version replaces no later one; instep run --full-refresh reads all"
    ]


def _slices(setup: TableAdapters, found: Reconciled) -> list[SlicePlan]:
    """Ranges of the key with so many rows, the first and the last open-ended."""
    wanted = dict.fromkeys(found.wanted) | {each.key: each for each in found.deleted}
    keys = sorted(wanted)
    if not keys:
        return []
    parts = [keys[at : at + _SLICE_ROWS] for at in range(0, len(keys), _SLICE_ROWS)]
    edges = [None, *(each[0] for each in parts[1:]), None]
    return [
        SlicePlan(
            index=index,
            bucket=0,
            lower="",
            upper="",
            units=len(part),
            work=max(1, round(len(part) * setup.slicing.work_factor)),
            priority=setup.priority,
            payload=encode_row_slice(
                RowSlice(
                    index,
                    len(parts),
                    None,
                    setup.rows.key,
                    KeyRange(lower, upper),
                    repair=Repair(
                        tuple(key for key in part if wanted[key] is None),
                        tuple(each for key in part if (each := wanted[key]) is not None),
                    ),
                )
            ),
        )
        for index, (part, (lower, upper)) in enumerate(zip(parts, pairwise(edges), strict=True))
    ]


def repair_of(slices: Sequence[RowSlice]) -> Repair:
    """The repair of all these slices."""
    found = [each.repair for each in slices if each.repair is not None]
    return Repair(
        tuple(key for each in found for key in each.wanted), tuple(row for each in found for row in each.gone)
    )


def not_repaired(setup: TableAdapters, part: JobPart, ledger: Ledger) -> list[str]:
    """Note, after a repair, rows that it read and that the index does not have: those that were deleted here later than
    the source says that they have changed.
    """
    import pyarrow as pa

    from instep.pipeline.tables.key_comparison import with_keys_of

    job = None if part.fresh else ledger.jobs.latest(part.ref)
    slices = ledger.slices.of_part(job.id, part.ref) if job else []
    wanted, _ = tables_of(setup, repair_of([each for one in slices if (each := decode_row_slice(one.payload))]))
    if not wanted.num_rows:
        return []
    reader = key_reader(setup)
    wanted = wanted.append_column("version", pa.repeat(0, wanted.num_rows)).cast(reader.schema)
    there = target_side(setup, part.physical, reader).rows(with_keys_of(wanted))
    failing = set(ledger.failures.versions(part.ref, part.generation))
    found = {*_texts(wanted)} - {*_texts(there)}
    found = {each for each in found if not _has_failed(setup, each, failing)}
    if not found:
        return []
    more = "" if setup.ref.scope.is_global else f", or instep namespace delete {setup.ref.scope} and the next run"
    return [
        f"warning: {amount(len(found), 'row')} of the source still not in the index, such as {min(found)}: deleted "
        f"here later than that (a restored backup?); instep run --full-refresh reads all{more}"
    ]


def tables_of(setup: TableAdapters, repair: Repair) -> tuple[pa.Table, pa.Table]:
    """The keys to read, and the rows to delete, in columns of the source. A deletion is a microsecond later than what
    it deletes: of one version the row would stay.
    """
    import pyarrow as pa

    from instep.arrow.types import arrow_type

    types = {each.name: arrow_type(each.type) for each in setup.columns()}
    rows = setup.rows

    def columns(keys: Sequence[Key]) -> dict[str, pa.Array]:  # type: ignore[type-arg]
        return {name: pa.array([key.values[at] for key in keys], types[name]) for at, name in enumerate(rows.key)}

    gone = columns([each.key for each in repair.gone])
    if rows.scope and rows.scope not in gone:
        gone[rows.scope] = pa.array([each.scope for each in repair.gone], types[rows.scope])
    if rows.watermark and rows.watermark not in gone:
        later = pa.array([each.version + 1 for each in repair.gone], pa.int64())
        gone[rows.watermark] = later.cast(types[rows.watermark])
    return pa.table(columns(repair.wanted)), pa.table(gone)
