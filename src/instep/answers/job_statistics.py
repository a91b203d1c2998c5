"""Numbers of a job for each of its entities, and together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from instep.answers.jobs import JobView, PartView
from instep.domain.counts import Counts
from instep.domain.jobs import SliceState
from instep.domain.refs import own_name
from instep.domain.speed import NOTHING_LATELY, seconds_left


def job_statistics(view: JobView) -> dict[str, Any]:
    """As JSON has it. Namespaces, and targets, of an entity are summed up."""
    entities: dict[str, list[PartView]] = {}
    for part in view.parts:
        entities.setdefault(own_name(part.ref.entity), []).append(part)
    return {
        "id": view.id,
        "state": str(view.state),
        "totals": _numbers(view, view.parts),
        "entities": {name: _numbers(view, parts) for name, parts in entities.items()},
        "duration_seconds": view.duration,
        "seen_at": view.seen_at,
    }


def _numbers(view: JobView, parts: Sequence[PartView]) -> dict[str, Any]:
    counts = sum((each.counts for each in parts), Counts())
    known = [each.units for each in parts if each.units is not None]
    total = sum(known) if len(known) == len(parts) else None
    slices = sum((Counter(each.slices) for each in parts), Counter[SliceState]())
    rate = sum((each.lately for each in parts), NOTHING_LATELY).rate(view.seen_at)
    return {
        "total": total,
        **{name: getattr(counts, name) for name in ("read", "written", "skipped", "deleted", "failed")},
        "slices": {str(state): slices.get(state, 0) for state in SliceState},
        "per_second": rate,
        "seconds_left": seconds_left(total, counts.read, rate),
    }
