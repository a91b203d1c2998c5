"""Order of targets: what goes into one of them is brought up to date, then what goes into the next.

Each turn has its own jobs. So a target that is down delays only itself, and later targets of an entity find the
embeddings of the first in the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter

from instep.domain.refs import PartitionRef
from instep.domain.texts import hidden
from instep.entities.setup import EntitySetup
from instep.errors import Away, InstepError, Outdated, Transient, Unknown, UserError

Turn = Sequence[EntitySetup]


def in_target_order(setups: Iterable[EntitySetup]) -> list[Turn]:
    """Group setups into turns, one for each target. Upstream entities come before those that depend on them, else the
    order stays.
    """
    found: dict[str, list[EntitySetup]] = {}
    for setup in setups:
        found.setdefault(setup.target_name, []).append(setup)
    waiting: list[Turn] = list(found.values())
    ordered: list[Turn] = []
    while waiting:
        turn = next((each for each in waiting if not _waits(each, waiting)), waiting[0])
        waiting = [each for each in waiting if each is not turn]
        ordered.append(turn)
    return ordered


def _waits(turn: Turn, among: Sequence[Turn]) -> bool:
    others = {setup.ref for each in among if each is not turn for setup in each}
    return any(not others.isdisjoint(setup.depends_on) for setup in turn)


def reachable_targets_first(found: Sequence[Turn]) -> list[Turn]:
    """Order turns so that those whose targets do not answer come last."""
    if len(found) < 2:
        return list(found)
    asked = [(not all(map(_answers, turn)), turn) for turn in found]
    return [turn for _, turn in sorted(asked, key=itemgetter(0))]


def problem_of(what: str, ref: PartitionRef, error: InstepError, *, else_: str | None = None) -> UserError:
    """The error of one partition when others succeeded: `Away` if it may pass, with the hint `else_` if it has none."""
    why, hint = (error.what, error.hint) if isinstance(error, UserError) else (str(error), None)
    text = hidden(f"{ref.label} {what}: {why.removeprefix(f'{ref}: ')}")
    hint = hint and hidden(hint)
    if isinstance(error, Transient | Unknown) or getattr(error, "exit_code", 0) == Away.exit_code:
        return Away(text, hint=hint or else_)
    place = getattr(error, "where", None)
    kind = Outdated if isinstance(error, Outdated) else UserError
    return kind(text, where=None if place in {None, str(ref)} else hidden(place), hint=hint)


def _answers(setup: EntitySetup) -> bool:
    try:
        setup.target.served(setup.alias)
    except InstepError:
        return False
    return True
