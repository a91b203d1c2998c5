"""Alias and ledger say the same, whatever happens to an instance while its part ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from instep.domain.instances import InstanceState
from instep.domain.jobs import JobState
from instep.errors import Conflict, UserError
from tests.jobs.quiet import REF, Quiet, built
from tests.simulator.simulation import MINUTE

#: Where the job is when what it needs turns out not to be had: the call, of which store, and whether just before it.
MOMENTS = [
    ("target", "commit", True),
    ("ledger", "parts.begin_finish", True),
    ("target", "maintain", True),
    ("target", "promote", True),
    ("target", "promote", False),
    ("ledger", "parts.finish", True),
]


def rebuild_of(world: Quiet, before: bool) -> None:
    if before:
        world.taint()


def at(world: Quiet, moment: tuple[str, str, bool], act: Callable[[], None]) -> None:
    store, name, first = moment
    hook = world.before if first else world.after
    hook(getattr(world, store), name, act)


@pytest.mark.parametrize("before", [False, True], ids=["nothing was served", "something was served"])
@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_a_build_refused_by_the_ledger_is_not_served(moment: tuple[str, str, bool], before: bool) -> None:
    world = built() if before else Quiet()
    served = world.served
    rebuild_of(world, before)
    at(world, moment, world.upstream_fails)
    result = world.run_once()
    assert (result.state, result.promoted) == (JobState.FAILED, False)
    assert world.served == served
    part = world.parts()[-1]
    assert part.state is JobState.FAILED
    assert "does not work on this instance any more" in (part.error or "")
    assert "Upstream" in (part.error or "")
    assert part.part.physical not in world.target.indexes
    assert world.current.state is InstanceState.MISSING
    world.sound()
    assert world.run_once().promoted, "the next run starts again"
    world.sound()


@pytest.mark.parametrize("before", [False, True], ids=["nothing was served", "something was served"])
@pytest.mark.parametrize(
    "moment",
    [("target", "promote", False), ("ledger", "parts.finish", True), ("ledger", "parts.finish", False)],
    ids=str,
)
def test_a_crash_between_alias_and_ledger_is_made_good(moment: tuple[str, str, bool], before: bool) -> None:
    world = built() if before else Quiet()
    rebuild_of(world, before)
    at(world, moment, world.kill)
    world.crashes()
    world.run_once()
    assert world.served == world.current.uuid
    assert len(world.parts()) == 1 + before, "it was not built again"
    world.sound()


@pytest.mark.parametrize("before", [False, True], ids=["nothing was served", "something was served"])
@pytest.mark.parametrize("fit", [True, False], ids=["resumed", "given up"])
def test_a_build_refused_after_a_crashed_promotion_is_not_served(before: bool, fit: bool) -> None:
    """The alias was moved by a worker that died; then its dependency was lost; then another worker took over."""
    world = built() if before else Quiet()
    rebuild_of(world, before)
    world.after(world.target, "promote", world.kill)
    world.crashes()
    lost = world.current.uuid
    world.upstream_fails()
    if not fit:
        world.transform(2)
    world.run_once()
    assert world.served == world.current.uuid != lost
    assert [each.state for each in world.parts()][-2:] == [JobState.FAILED, JobState.COMPLETED]
    world.sound()


def test_an_interrupted_promotion_reaches_readers_before_the_ledger_records_it() -> None:
    """The target may have recorded only that it is to be: with many of them readers see it a moment later."""
    world = built()
    before, promote = world.served, world.target.promote
    world.taint()
    world.after(world.target, "promote", world.kill)
    world.crashes()
    done, said = world.current.uuid, list[tuple[str | None, str | None]]()

    def saying(alias: str, physical: str | None, epoch: int) -> None:
        checkpoint = world.ledger.checkpoints.get(REF)
        said.append((physical, checkpoint.instance if checkpoint else None))
        promote(alias, physical, epoch)

    world.target.promote = saying  # type: ignore[method-assign]  # of this one only
    world.transform(2)
    world.before(world.target, "maintain", world.kill)
    world.crashes()
    assert said == [(world.target.served("Document"), before)]
    assert world.served == done
    world.sound()


@pytest.mark.parametrize("before", [False, True], ids=["nothing was served", "something was served"])
@pytest.mark.parametrize("call", ["parts.finish", "leases.transfer", "checkpoints.get", "promote", "drop"])
def test_a_crash_while_the_alias_is_put_back_is_made_good(call: str, before: bool) -> None:
    world = built() if before else Quiet()
    served = world.served
    rebuild_of(world, before)

    armed = False

    def refused() -> None:
        nonlocal armed
        world.upstream_fails()
        armed = True

    def kill() -> None:
        if armed:
            world.kill()

    world.after(world.target, "promote", refused)
    store = world.target if call in ("promote", "drop") else world.ledger
    hook = world.after if call == "parts.finish" else world.before
    hook(store, call, kill, times=100)
    world.crashes()
    armed = False
    world.run_once()
    assert world.served not in (served, None)
    assert world.served == world.current.uuid
    assert world.ledger.jobs.unfinished(REF) is None
    world.sound()


def test_a_job_that_is_stopped_at_the_last_moment_is_resumed() -> None:
    """A refusal for another reason: the part stays open, and its next finisher ends it."""
    world = built()
    world.taint()

    def stop() -> None:
        world.ledger.jobs.request_stop(world.current.job or "")

    world.after(world.target, "promote", stop)
    with pytest.raises(UserError, match="stopped"):
        world.run_once()
    world.run_once()
    assert world.served == world.current.uuid
    assert len(world.parts()) == 2
    world.sound()


def always_in_the_way(world: Quiet) -> list[float]:
    """Another program moves the alias before each try. Returns when the tries were."""
    tries = list[float]()

    def lose() -> None:
        tries.append(world.now)
        raise Conflict("alias 'Document': epoch 7 serves another index")

    world.before(world.target, "promote", lose, times=1000)
    return tries


def test_a_run_that_never_wins_the_alias_ends_with_the_reason_after_some_tries() -> None:
    world = built()
    served = world.served
    world.taint()
    real = world.target.promote
    tries = always_in_the_way(world)
    with pytest.raises(UserError, match="others change the same thing: alias 'Document': epoch 7 serves another index"):
        world.run_once()
    assert 5 < len(tries) < 12
    assert tries[-1] - tries[0] < 2 * MINUTE
    world.target.promote = real  # type: ignore[method-assign]  # as it was
    assert world.served == served
    world.run_once()
    assert world.served == world.current.uuid != served
    assert len(world.parts()) == 2, "it was not built again"
    world.sound()


def test_a_worker_that_never_wins_the_alias_stops_the_part_with_the_reason() -> None:
    world = built()
    world.taint()
    world.want("w")
    tries = always_in_the_way(world)
    world.work()
    assert len(tries) < 40
    assert "others change the same thing" in (world.parts()[-1].error or "")
