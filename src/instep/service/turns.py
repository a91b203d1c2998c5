"""Turns: an entity with several targets is brought up to date in one after the other.

Each turn has a job of its own. So a target that is away holds up nobody but itself, and those that come later find the
embeddings of the first in the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter

from instep.errors import InstepError
from instep.service.setup import EntitySetup


def turns(setups: Iterable[EntitySetup]) -> list[list[EntitySetup]]:
    """What is worked on together: entities in their only, or their first target; those in their second; and so on."""
    found: list[list[EntitySetup]] = []
    targets: dict[str, list[str]] = {}
    for setup in setups:
        names = targets.setdefault(setup.alias, [])
        if setup.target_name not in names:
            names.append(setup.target_name)
        place = names.index(setup.target_name)
        found += [[] for _ in range(place + 1 - len(found))]
        found[place].append(setup)
    return found


def those_that_answer_first(found: Sequence[Sequence[EntitySetup]]) -> list[Sequence[EntitySetup]]:
    """The same, but what would have to be waited for comes last."""
    if len(found) < 2:
        return list(found)
    asked = [(not all(map(_answers, turn)), turn) for turn in found]
    return [turn for _, turn in sorted(asked, key=itemgetter(0))]


def _answers(setup: EntitySetup) -> bool:
    try:
        setup.target.served(setup.alias)
    except InstepError:
        return False
    return True
