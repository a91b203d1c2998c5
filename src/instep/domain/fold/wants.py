"""Rules for events about wants."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from instep.domain import events as e
from instep.domain.fold.step import Refused, Rule, Step
from instep.domain.wants import Want, WantState, watermark_needed

_IDLE, _CANCELED = WantState.IDLE, WantState.CANCELED


def _created(step: Step, event: e.WantCreated) -> None:
    refs = step.wanted(event.want, event.refs)
    current = [step.named(ref, event.generation) for ref in refs]
    want = Want(
        event.want,
        refs,
        event.generation,
        _IDLE,
        step.at,
        watermark_needed(step.at, event.fresh_within, event.as_of),
        event.fresh_within,
        event.as_of,
        step.state.text(event.by),
        traceparent=event.traceparent,
        settings=event.settings,
    )
    step.begin(want, current)


def _canceled(step: Step, event: e.WantCanceled) -> None:
    want = step.wants.get(event.want)
    if want is None:
        raise Refused("unknown-want", f"no want {event.want} is known")
    if want.ended_at is not None:
        raise Refused("not-allowed", f"want {want.id} has ended, and is {want.state}")
    by = f" by {event.by}" if event.by else ""
    why = f": {event.why}" if event.why else ""
    step.end(replace(want, state=_CANCELED, ended_at=step.at, error=f"canceled{by}{why}", upstream=()))


RULES: Mapping[type[e.Event], Rule] = {e.WantCreated: _created, e.WantCanceled: _canceled}
