"""Rows that a pending queue names: its keys as slices, and as a selection."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import pairwise

from instep.domain.columns import TypeName
from instep.domain.cuts import KeyRange
from instep.domain.jobs import JobPart, SlicePlan, SliceStatus
from instep.domain.keys import Key, key_of
from instep.domain.pending_queue import KeyKind, QueueKey, batches, beyond, stretches
from instep.domain.planning import rows_per_slice
from instep.domain.rows import RowSlice, Selection, decode_row_slice, encode_row_slice
from instep.domain.texts import amount
from instep.entities.generations import wanted_as_of_now
from instep.entities.plan_request import Found, Kind, PlanRequest
from instep.entities.tables.adapters import TableAdapters
from instep.entities.tables.change_queue import EntityQueue
from instep.errors import UserError
from instep.ledger.ledger import Ledger
from instep.sources.tables.predicates import MAX_RANGES

_WHOLE_NUMBERS = (TypeName.INT32, TypeName.INT64)


def find_pending(setup: TableAdapters, queue: EntityQueue, request: PlanRequest) -> Found:
    """The pending keys, at most as many as one job takes."""
    if request.generation:
        raise UserError(
            f"the queue {queue.name} gives each key once, so there are no generations of what is made of it",
            where=str(setup.ref),
            hint="Rebuild it: instep run --full-refresh",
        )
    checkpoint = request.checkpoint
    pending = queue.pending(request.ledger)
    keys = pending.keys
    if not keys and checkpoint is not None:
        why = wanted_as_of_now(request, setup.ref, now=pending.until)
        return Found(Kind.REFRESH if why else Kind.NOTHING, why, "row", target=pending.until)
    setup.tables()  # Errors of the declaration are raised before anything is leased.
    more = ", and more" if pending.left else ""
    return Found(
        kind=request.kind,
        why=[*request.why, f"pending in the queue {queue.name}: {amount(len(keys), 'key')}{more}"],
        unit="row",
        slices=cut_keys(setup, keys),
        counts={"new": len(keys) - pending.retries, "retried": pending.retries},
        state=[hashlib.sha256(repr(keys).encode()).hexdigest()],
        # While keys are left, the index stays complete up to the old watermark only.
        target=(checkpoint.watermark if checkpoint else 0) if pending.left else pending.until,
        left=pending.left,
    )


def notes(queue: EntityQueue, part: JobPart, ledger: Ledger) -> list[str]:
    """Notes about keys without rows, which are no failures."""
    job = ledger.jobs.latest(part.ref)
    if job is None or not has_keys(ledger.slices.of_part(job.id, part.ref, limit=1)):
        return []
    status = job.part(part.ref)
    missing = status.units - status.counts.read
    if missing <= 0:
        return []
    return [f"{amount(missing, 'key')} of the queue {queue.name} had no row in the source, or went to other consumers"]


def cut_keys(setup: TableAdapters, keys: Sequence[QueueKey]) -> list[SlicePlan]:
    """Batches in key order, the first and the last open-ended."""
    if not keys:
        return []
    factor, key = setup.slicing.work_factor, _maker(setup)
    found = batches(keys, rows_per_slice(setup.slicing.slice_rows, factor))
    edges = [None, *(key(each[0]) for each in found[1:]), None]
    return [
        SlicePlan(
            index=index,
            bucket=0,
            lower="",
            upper="",
            units=len(each),
            work=max(1, round(len(each) * factor)),
            priority=setup.priority,
            payload=encode_row_slice(
                RowSlice(index, len(found), None, setup.rows.key, KeyRange(lower, upper), tuple(each))
            ),
        )
        for index, (each, (lower, upper)) in enumerate(zip(found, pairwise(edges), strict=True))
    ]


def has_keys(slices: Sequence[SlicePlan] | Sequence[SliceStatus]) -> bool:
    """Whether they were cut by `cut_keys`."""
    first = decode_row_slice(slices[0].payload) if slices else None
    return first is not None and bool(first.keys)


def selection(setup: TableAdapters, keys: Sequence[QueueKey]) -> Selection:
    """Select the rows with these keys, by key and by key range: a source may be able to use only one of the two."""
    key = _maker(setup)
    ends = ((first, beyond(last)) for first, last in stretches(keys, MAX_RANGES))
    ranges = (KeyRange(key(first), None if after is None else key(after)) for first, after in ends)
    return Selection(setup.ref.scope, None, setup.rows.key, tuple(ranges), tuple(map(key, keys)))


def _maker(setup: TableAdapters) -> Callable[[QueueKey], Key]:
    """A function that converts a key to the source's own type."""
    assert setup.queue is not None, "others have no keys of a queue"
    (name,) = setup.rows.key
    kind, whole = next(each.type for each in setup.columns() if each.name == name), setup.queue.kind is KeyKind.INTEGER
    if kind.name in (_WHOLE_NUMBERS if whole else (TypeName.STRING,)):
        return key_of
    if whole and kind.name is TypeName.DECIMAL and not kind.scale:
        return lambda value: key_of(Decimal(value))
    raise UserError(
        f"{name!r} is {kind}, and keys of the queue {setup.queue.name} are {'whole numbers' if whole else 'texts'}",
        where=setup.source_text,
        hint="Cast it, with `sql`.",
    )
