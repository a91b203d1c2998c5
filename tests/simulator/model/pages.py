"""Pages of jobs, slices and failures."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

from instep.domain.jobs import Job, JobState, SliceState
from instep.domain.refs import PartitionRef
from instep.ledger.failures import FailureFilter, FailureGroup, FailurePlace, FailureRecord
from instep.ledger.jobs import JobPlace
from instep.ledger.slices import SlicePlace, SliceView
from tests.simulator.model.jobs import view
from tests.simulator.model.tables import SliceRow, Tables


def jobs_after(
    tables: Tables,
    states: Collection[JobState],
    after: JobPlace | None,
    limit: int,
    *,
    refs: Collection[PartitionRef] | None = None,
) -> list[Job]:
    found = [
        (JobPlace(each.created_at, each.id), each)
        for each in tables.jobs.values()
        if (not states or each.state in states) and (refs is None or each.parts.keys() & set(refs))
    ]
    ordered = sorted(found, key=lambda each: each[0], reverse=True)
    return [
        view(tables, job) for _, job in islice((each for each in ordered if after is None or each[0] < after), limit)
    ]


def slices_after(
    tables: Tables,
    job_id: str,
    *,
    refs: Collection[PartitionRef] | None,
    state: SliceState | None,
    after: SlicePlace | None,
    limit: int,
) -> list[SliceView]:
    found = [
        each
        for each in _slices(tables, job_id)
        if (refs is None or each.ref in refs)
        and (state is None or each.state is state)
        and (after is None or each.place > after)
    ]
    return found[:limit]


def slice_states(tables: Tables, job_id: str) -> list[tuple[PartitionRef, int, SliceState]]:
    return [(each.ref, each.number, each.state) for each in _slices(tables, job_id)]


def failures_after(tables: Tables, only: FailureFilter, after: FailurePlace | None, limit: int) -> list[FailureRecord]:
    found = [
        ((-each.failed_at, str(each.ref), each.generation, each.document_id), each) for each in _failed(tables, only)
    ]
    place = None if after is None else (-after.failed_at, *after[1:])
    ordered = sorted(found, key=lambda each: each[0])
    return [each for at, each in ordered if place is None or at > place][:limit]


def dismiss_failures(tables: Tables, uris: Collection[str], only: FailureFilter) -> list[FailureRecord]:
    """Those of documents that are named, or begin as a name that ends in `*`."""
    begins = tuple(each[:-1] for each in uris if each.endswith("*"))
    found = [each for each in _failed(tables, only) if each.uri in uris or each.uri.startswith(begins)]
    for each in found:
        del tables.failures[each.ref, each.generation][each.document_id]
    return found


def failure_groups(tables: Tables, only: FailureFilter) -> list[FailureGroup]:
    found: dict[tuple[PartitionRef, str, str, str], list[int]] = {}
    for each in _failed(tables, only):
        found.setdefault((each.ref, each.generation, each.stage, each.reason), []).append(each.failed_at)
    groups = [FailureGroup(*key, len(times), max(times)) for key, times in found.items()]
    return sorted(groups, key=lambda each: (-each.number, str(each.ref), each.generation, each.stage, each.reason))


def _failed(tables: Tables, only: FailureFilter) -> list[FailureRecord]:
    return [
        each
        for key, records in tables.failures.items()
        if only.refs is None or key[0] in only.refs
        for each in records.values()
        if only.job in (None, each.job_id) and only.stage in (None, each.stage) and only.reason in (None, each.reason)
    ]


def _slices(tables: Tables, job_id: str) -> list[SliceView]:
    return sorted(map(_view, (each for each in tables.slices.values() if each.job_id == job_id)), key=_place)


def _place(slice_: SliceView) -> SlicePlace:
    return slice_.place


def _view(row: SliceRow) -> SliceView:
    plan = row.plan
    return SliceView(
        row.ref,
        plan.index,
        row.id,
        plan.bucket,
        row.state,
        plan.units,
        plan.work,
        row.attempts,
        row.worker_id,
        row.claimed_at or None,
        row.finished_at or None,
        row.error,
    )
