"""Seeded bugs of what is made from other entities, and of generations."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from instep.domain.fold.step import Step
from instep.entities import aliases
from instep.jobs import finish, prerequisites, promote, want_scheduler
from instep.planning import plan
from instep.planning.upstream import Upstream, Waiting

from .log_mutations import ALL
from .mutations import Patch, seeded_bug

__all__ = ["ALL"]


@seeded_bug
def slices_are_run_though_their_part_waits(patch: Patch) -> None:
    patch.setattr(Waiting, "look", lambda self, key, part: None)


@seeded_bug
def what_is_missed_is_not_waited_for(patch: Patch) -> None:
    """The derivative want is forgotten."""
    patch.setattr(Upstream, "missed", lambda self, job_id, instance, ids: ())


@seeded_bug
def no_worker_begins_the_upstream(patch: Patch) -> None:
    patch.setattr(prerequisites.Prerequisites, "_lacking", lambda self, worker: {})


@seeded_bug
def who_waits_for_nothing_waits_for_ever(patch: Patch) -> None:
    patch.setattr(prerequisites, "cancel_waits", lambda *args: False)
    patch.setattr(want_scheduler, "cancel_waits", lambda *args: False)


@seeded_bug
def what_was_waited_for_is_no_input(patch: Patch) -> None:
    def released(self: Step, want: Any) -> None:
        before = {uuid: self.instances[uuid].inputs for uuid in want.blocks if uuid in self.instances}
        original(self, want)
        for uuid, inputs in before.items():
            instance = self.instances[uuid]
            if instance.inputs != inputs:
                self.store(replace(instance, inputs=inputs))

    original = Step._released
    patch.setattr(Step, "_released", released)


@seeded_bug
def what_was_refused_is_built_again_for_what_is_made_from_it(patch: Patch) -> None:
    """A bug that was there, and that the simulator found."""
    patch.setattr(plan, "_asked", lambda ref, generation, current, options, ledger: bool(ledger.wants.newest(ref=ref)))


@seeded_bug
def a_promotion_is_not_recorded(patch: Patch) -> None:
    """The alias is moved, and no event says so."""
    patch.setattr(promote._Promotion, "_record", lambda self, lease: None)


@seeded_bug
def what_is_built_of_other_generations_is_swept(patch: Patch) -> None:
    def sweep(setup: Any, ledger: Any) -> None:
        for physical in setup.target.leftovers(setup.alias, idle_seconds=finish.SWEEP_SECONDS):
            setup.target.drop(physical)

    patch.setattr(finish, "sweep", sweep)


@seeded_bug
def each_build_is_served_whatever_generation_is_promoted(patch: Patch) -> None:
    def found(setup: Any, generation: str, ledger: Any) -> list[str]:
        own = setup.alias_of(generation)
        return [*([own] if own else []), setup.alias]

    patch.setattr(finish, "aliases_of", found)
    patch.setattr(aliases, "aliases_of", found)
