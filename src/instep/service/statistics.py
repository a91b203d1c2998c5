"""Numbers of a job for each of its entities, and together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from instep.domain.counts import Counts
from instep.domain.jobs import JobState, SliceState
from instep.domain.refs import own_name
from instep.service.jobs import JobView, PartView


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
    rate = counts.read / view.duration if view.duration and counts.read and view.state is JobState.RUNNING else None
    return {
        "total": total,
        **{name: getattr(counts, name) for name in ("read", "written", "skipped", "deleted", "failed")},
        "slices": {str(state): slices.get(state, 0) for state in SliceState},
        "per_second": rate,
        "seconds_left": None if rate is None or total is None else max(0, total - counts.read) / rate,
    }
