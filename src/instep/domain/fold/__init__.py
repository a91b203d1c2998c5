"""The fold: what the ledger's events make of instances and wants.

`apply` is a function of the state and one event, without a clock (there is `Recorded.at`) and without chance:
folding the same log again gives the same state, UUIDs included. Every pair of state and event is defined: the event
is applied, or it is `Rejected` in words and nothing has changed.

The rules, beside which moves are allowed (`INSTANCE_TRANSITIONS`):

* Events about instances name UUIDs and, where a job reports, the job; only the canonical instance of a partition's
  generation takes them, and only from the job that works on it. What was left never changes again.
* A taint, an expiry and a failure leave the instance and make the next one, Missing, in the same step: the
  canonical instance is always one that is Missing, Building, Live or Refreshing.
* A partition that is dropped has no canonical instance, and nothing is served of it; wants on it are canceled. It may
  be built for the first time again. An instance of before is not served again until then.
* A rebuild needs a Live instance: a Missing one will be built anyway, one in work is to be waited for or stopped.
* What is served is apart from what is canonical: any instance that is Live can be, so that an earlier one can be served
  again, and a taint changes nothing for readers until there is something better.
* Each generation has its own canonical and its own served instance. The first generation that is served of a partition
  is promoted by that; another one, once something is served of it, by its own event.
* Wants follow the canonical instances of their refs (`wants.state_of`), in the step that changes these.
* A want fails when a build or refresh of one of its partitions does that it waits for, unless the event says that it
  will be retried: who appends it counts the tries. The next instance is made in any case, so that a later want finds
  one that is Missing and not one that has failed. A want with `retries` has several attempts: it is Idle again until
  the last one has failed; or still Building, if an error has only stopped its job. What fails while it pauses spends
  none.
* A derivative want that ends badly (failed, canceled) takes along what waits for it, in the same step: instances that
  are Building fail, those Refreshing are Live as before, the wants on them become UpstreamFailed with the chain in
  words, and so on. When it succeeds, they wait no more, and are made from what it succeeded by: the job can go on.
* A dependency that would make an instance wait for itself is rejected.

What each event does is in `fold.instances` and `fold.wants`; what follows from that, in `fold.step`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from instep.domain import events as e
from instep.domain.fold import instances, wants
from instep.domain.fold.step import Refused, Rule, Step
from instep.domain.state import Change, Rejected, State

_RULES: Mapping[type[Any], Rule] = {**instances.RULES, **wants.RULES}


def apply(state: State, recorded: e.Recorded) -> tuple[Change, ...] | Rejected:
    """Apply the next event of the log, all or nothing: one that is to be appended is tried in this way first."""
    changes: list[Change] = []
    try:
        _apply(Step(state, changes), recorded)
    except Refused as refused:
        return refused.rejected
    return tuple(changes)


#: Is told of an event that is skipped: its sequence, the name that it is counted by, and the reason in words.
Told = Callable[[int, str, str], None]


def follow(state: State, recorded: e.Recorded, told: Told | None = None) -> tuple[Change, ...]:
    """Apply an event of the log, or skip it by rule: what is rejected or cannot be read is counted by name, and so is
    what is missing before it. What was applied already changes nothing.
    """
    changes: list[Change] = []
    _follow(Step(state, changes), recorded, told)
    return tuple(changes)


def replay(log: Iterable[e.Recorded], state: State | None = None) -> State:
    """The state after these events: from the beginning, or on top of a state (which is changed)."""
    state = State() if state is None else state
    # No caller needs the changes.
    step = Step(state, deque(maxlen=0))
    for recorded in log:
        try:
            _apply(step, recorded)
        except Refused as refused:
            _skip(step, recorded, refused.rejected)
    return state


def _apply(step: Step, recorded: e.Recorded) -> None:
    sequence, event = recorded.sequence, recorded.event
    if sequence != step.state.sequence + 1:
        raise Refused("out-of-order", f"event {sequence} is not the one after {step.state.sequence}")
    rule = _RULES.get(type(event))
    if rule is None:
        raise _not_an_event(event)
    step.sequence, step.at = sequence, recorded.at
    rule(step, event)
    if step.touched or step.ended:
        step.propagate()
    step.state.sequence = sequence


def _not_an_event(event: e.Event | e.Unreadable) -> Refused:
    if isinstance(event, e.Unreadable):
        return Refused(event.name, event.reason)
    return Refused("unknown-kind", f"no event is a {type(event).__name__}")


def _follow(step: Step, recorded: e.Recorded, told: Told | None = None) -> None:
    try:
        _apply(step, recorded)
    except Refused as refused:
        _skip(step, recorded, refused.rejected, told)


def _skip(step: Step, recorded: e.Recorded, rejected: Rejected, told: Told | None = None) -> None:
    """Go on without an event that was rejected; if that was because others are missing, go on without those."""
    state = step.state
    missing = recorded.sequence - state.sequence - 1
    if missing > 0:
        if told:
            told(state.sequence + 1, "missing", f"{missing:,} events from this one on are not there")
        _count(state, "missing", missing)
        _follow(step, recorded, told)
    elif missing == 0:
        if told:
            told(recorded.sequence, rejected.name, rejected.reason)
        _count(state, rejected.name, 1)


def _count(state: State, name: str, events: int) -> None:
    state.skipped[name] = state.skipped.get(name, 0) + events
    state.sequence += events
