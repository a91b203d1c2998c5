"""Wants as users have them: made, listed, canceled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from instep.answers.wants import Want, want_answer
from instep.domain import wants
from instep.domain.events import WantCanceled, WantCreated, WantFailed
from instep.domain.instances import Instance
from instep.domain.refs import PartitionRef
from instep.domain.requests import Kind
from instep.domain.settings import NO_SETTINGS, JobSettings
from instep.domain.wants import Retries, WantState
from instep.entities.generations import generation_of
from instep.errors import Conflict, Missing, UserError
from instep.ledger.ledger import Ledger
from instep.telemetry import traces
from instep.telemetry.context import current_context

#: A want may be named by the beginning of its id, if that is at least so long.
SHORTEST_PREFIX = 4
#: Among how many wants, the newest, a beginning is looked up. A whole id finds any want.
SEARCHED_WANTS = 1_000


def make_want(
    ledger: Ledger,
    want_id: str,
    refs: Sequence[PartitionRef],
    *,
    generation: str = "",
    fresh_within: int | None = None,
    as_of: int | None = None,
    by: str = "",
    settings: JobSettings = NO_SETTINGS,
) -> Want:
    """Want partitions as of a time, or not older than so many ms now, or at all."""
    if not refs:
        raise UserError("a want names at least one entity")
    if (fresh_within or 0) < 0 or (as_of or 0) < 0:
        raise UserError("a want is neither fresher than now, nor as of a time before 1970")
    with traces.span("request", want=want_id, refs=", ".join(map(str, refs[:20])), by=by):
        event = WantCreated(
            want=want_id,
            refs=tuple(str(ref) for ref in refs),
            generation=generation,
            fresh_within=fresh_within,
            as_of=as_of,
            by=by,
            traceparent=current_context().traceparent,
            settings=None if settings == NO_SETTINGS else settings,
        )
        try:
            ledger.events.append([event])
        except Conflict as error:
            raise UserError(str(error)) from error
    return _view(ledger, want_id)


def want_of_program(
    ledger: Ledger, want_id: str, ref: PartitionRef, *, as_of: int | None, by: str, retries: Retries
) -> WantCreated:
    """Make the event of a want that no person asks for: of what is served of one partition, tried several times."""
    return WantCreated(
        want=want_id,
        refs=(str(ref),),
        generation=generation_of(ledger, ref, None),
        as_of=as_of,
        by=by,
        traceparent=current_context().traceparent,
        retries=retries,
    )


def cancel_want(ledger: Ledger, want_id: str, *, by: str = "", why: str = "") -> Want:
    """The want is waited for no more; the builds it shares go on. Raises `UserError` when it has ended otherwise."""
    before = ledger.wants.get(want_id)
    if before is not None and before.state is WantState.CANCELED:
        return _view(ledger, want_id)
    try:
        ledger.events.append([WantCanceled(want=want_id, by=by, why=why)])
    except Conflict as error:
        raise UserError(str(error), hint="Only a want that still waits can be canceled; see `instep wants`.") from error
    return _view(ledger, want_id)


def fail_undeclared(ledger: Ledger, entities: Mapping[str, Kind], *, after: int) -> None:
    """End wants that no worker can serve: on partitions that the project does not declare (any more), for `after` ms
    already, since workers of a newer project may come.
    """
    now = ledger.now()
    for ref in ledger.wants.open_refs():
        if entities.get(ref.entity) is not Kind.of(ref.scope):
            for want in ledger.wants.newest(ref=ref, open_only=True):
                if want.state is WantState.IDLE and now - want.created_at >= after:
                    with suppress(Conflict):  # Another worker was faster.
                        why = f"the project declares no partition {ref}"
                        ledger.events.append([WantFailed(want=want.id, error=why, final=True)])


def want_views(
    ledger: Ledger,
    *,
    ref: PartitionRef | None = None,
    open_only: bool = True,
    after: str | None = None,
    limit: int = 100,
) -> list[Want]:
    """Newest first. Raises `Missing` if there is no want `after` which the list could go on."""
    if after is not None and ledger.wants.get(after) is None:
        raise Missing(
            f"the list cannot go on after the want {after!r}: it is not there", hint="Begin with the first page."
        )
    known: dict[tuple[str, str], Instance | None] = {}
    found, now = ledger.wants.newest(ref=ref, open_only=open_only, after=after, limit=limit), ledger.present()
    return [want_answer(want, _current(ledger, want, known), now) for want in found]


def want_view(ledger: Ledger, wanted: str) -> Want:
    """The want whose id is, or alone begins with, `wanted`. Raises `Missing` if there is no such one."""
    want = find_want(ledger, wanted)
    return want_answer(want, _current(ledger, want, {}), ledger.present())


def find_want(ledger: Ledger, wanted: str) -> wants.Want:
    """The want whose id is, or alone begins with, `wanted`. Raises `Missing` if there is no such one."""
    exact = ledger.wants.get(wanted)
    if exact is not None:
        return exact
    if len(wanted) < SHORTEST_PREFIX:
        raise Missing(
            f"{wanted!r} is too short for the beginning of a want's id",
            hint=f"Give at least {SHORTEST_PREFIX} characters; `instep wants --all` lists the ids.",
        )
    # Those that are open first: there may be many that have ended since.
    waiting = ledger.wants.newest(open_only=True, limit=SEARCHED_WANTS)
    candidates = {each.id: each for each in (*waiting, *ledger.wants.newest(limit=SEARCHED_WANTS))}
    found = [each for each in candidates.values() if each.id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(each.id for each in found[:5])
        raise UserError(f"{len(found)} wants begin with {wanted!r}", hint=f"Which one? {names}")
    if not candidates:
        raise Missing("no want is known", hint="`instep want ENTITY` makes one.")
    raise Missing(f"no want begins with {wanted!r}", hint="`instep wants --all` lists them.")


def _view(ledger: Ledger, want_id: str) -> Want:
    want = ledger.wants.get(want_id)
    if want is None:
        raise Conflict(f"want {want_id} is not in the ledger any more")
    return want_answer(want, _current(ledger, want, {}), ledger.present())


def _current(
    ledger: Ledger, want: wants.Want, known: dict[tuple[str, str], Instance | None]
) -> tuple[Instance | None, ...]:
    for ref in want.refs:
        if (ref, want.generation) not in known:
            known[ref, want.generation] = ledger.instances.canonical(PartitionRef.parse(ref), want.generation)
    return tuple(known[ref, want.generation] for ref in want.refs)
