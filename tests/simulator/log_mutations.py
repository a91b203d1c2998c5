"""Seeded bugs of the event log, put into the model of the ledger."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from instep.domain.events import InstanceServed, InstanceTainted, WantCanceled
from instep.domain.state import Rejected
from tests.simulator.model import instances, log, parts
from tests.simulator.model.tables import Tables

from .mutations import Patch, seeded_bug
from .promotion_mutations import ALL

__all__ = ["ALL"]


@seeded_bug
def what_is_promoted_is_not_told(patch: Patch) -> None:
    patch.setattr(instances, "promoted", lambda tables, job, row, reached: None)


@seeded_bug
def what_failed_is_not_told(patch: Patch) -> None:
    patch.setattr(instances, "failed", lambda tables, job, part, error, *, retry: None)


@seeded_bug
def an_event_is_not_stored(patch: Patch) -> None:
    def attempt(tables: Tables, events: Any) -> Any:
        recorded = original(tables, events)
        if any(isinstance(each, InstanceTainted) for each in events) and not isinstance(recorded, Rejected):
            tables.log.pop()
        return recorded

    original = log.attempt
    patch.setattr(log, "attempt", attempt)


@seeded_bug
def what_is_stored_is_not_what_the_log_says(patch: Patch) -> None:
    def attempt(tables: Tables, events: Any) -> Any:
        recorded = original(tables, events)
        for each in events:
            if isinstance(each, WantCanceled) and not isinstance(recorded, Rejected):
                tables.state.wants[each.want] = structs.replace(tables.state.wants[each.want], error="no need")
        return recorded

    original = log.attempt
    patch.setattr(log, "attempt", attempt)


@seeded_bug
def an_event_is_appended_whether_the_call_was_refused_or_not(patch: Patch) -> None:
    """Not in the transaction of what it tells of."""

    def finish(tables: Tables, job_id: str, part: Any, state: Any, **kwargs: Any) -> Any:
        try:
            return original(tables, job_id, part, state, **kwargs)
        finally:
            log.attempt(tables, [InstanceServed(instance=part.instance)])

    original = parts.finish
    patch.setattr(parts, "finish", finish)
