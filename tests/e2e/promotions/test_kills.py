"""kill -9 at every step of a promotion, on every target: readers lack nothing, and the next run ends it.

(With Lance and OpenSearch for documents see `tests.e2e.killing`.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.promotions.acting import Serving, Step, act
from tests.e2e.promotions.places import KINDS, Kind
from tests.e2e.promotions.readers import Found, Reader
from tests.e2e.promotions.sites import Rows, Site


@dataclass
class Scene:
    """A site, and what can be seen of it from outside. Turns and processes are counted."""

    kind: Kind
    site: Site
    reader: Reader
    turn: int = 0
    runs: int = field(default=0)

    def run(self, **options: object) -> tuple[object, ...]:
        self.runs += 1
        return "run", self.runs, *options.items()

    def do(self, *todo: tuple[object, ...]) -> list[Serving]:
        """Nothing goes wrong, and then target and ledger are as returned."""
        reports = act(self.site, *todo, ("report",))
        assert reports is not None
        return reports[-1]

    def do_a_turn(self) -> list[Serving]:
        self.turn += 1
        return self.do(("turn", self.turn), self.run())

    def found(self) -> Found:
        return self.reader.read(self.site.entity, self.site.key)

    def demand_either(self, before: Rows, after: Rows) -> None:
        """Readers find the one or the other whole."""
        rows = self.found().rows
        if self.kind.atomic:
            assert rows in (before, after)
            return
        for kind in {*before, *after, *rows}:
            assert rows.get(kind) in (before.get(kind), after.get(kind)), f"kind {kind!r}"
        assert rows[""]
        if rows[""] == after[""]:
            assert {kind: rows[kind] for kind in after} == after, "edges move first"

    def demand_agreement(self, said: list[Serving]) -> None:
        """Of ledger, target and readers."""
        assert self.found().origins == {(each.ref, each.instance) for each in said}
        assert [each.served for each in said] == [each.physical for each in said]

    def demand_served(self, said: list[Serving]) -> None:
        """What is declared now is, and nothing is left to do."""
        self.demand_agreement(said)
        assert self.found().rows == self.site.expected(self.turn)
        assert not any(each.unfinished for each in said)

    def demand_all(self, said: list[Serving]) -> None:
        """And nothing else is there: a run that built something has swept."""
        self.demand_served(said)
        assert not any(each.leftovers for each in said)
        assert self.reader.there(self.site.entity) == {each.physical for each in said}


@pytest.fixture
def scene(kind: Kind, shared: bool, tmp_path: Path) -> Iterator[Scene]:
    with kind.place(tmp_path) as (target, reader):
        yield Scene(kind, kind.site(tmp_path / "project", target, shared=shared), reader)


every_kind = pytest.mark.parametrize("kind", KINDS, ids=str)
alone = pytest.mark.parametrize("shared", [False], ids=["alone"])
#: Of tables: an index of one partition, or one that several lie in.
alone_or_shared = pytest.mark.parametrize(
    ("kind", "shared"),
    [
        pytest.param(kind, shared, id=f"{kind}{', shared' * shared}")
        for shared in (False, True)
        for kind in KINDS
        if kind.tables or not shared
    ],
)


def killed_in_a_rebuild(scene: Scene, step: Step, *first: tuple[object, ...]) -> bool:
    """At this step, if it comes to that."""
    before, scene.turn = scene.turn, scene.turn + 1
    died = act(scene.site, *first, ("turn", scene.turn), ("arm", step), scene.run()) is None
    if died:
        scene.demand_either(scene.site.expected(before), scene.site.expected(scene.turn))
    return died


def kills_in_rebuilds(scene: Scene, call: str) -> Iterator[None]:
    """Before each write of this call in turn, until there is none left to die at. There are at least two."""
    met = 0
    for step in scene.kind.within(call):
        if not killed_in_a_rebuild(scene, step):
            break
        met += 1
        yield
    assert met >= 2


#: One that moves all at once and one that does not; the others are run by `make soak`.
OFTEN = ("postgres", "clickhouse")


@pytest.mark.proof
@pytest.mark.parametrize(
    "kind", [pytest.param(each, marks=() if str(each) in OFTEN else pytest.mark.long) for each in KINDS], ids=str
)
@alone
def test_a_promotion_that_was_killed_in_the_middle_is_ended_by_the_next_run(scene: Scene) -> None:
    assert killed_in_a_rebuild(scene, scene.kind.sharpest, ("turn", 0), scene.run())
    scene.demand_all(scene.do(scene.run()))


@pytest.mark.long
@alone_or_shared
def test_a_promotion_that_was_killed_at_any_write_is_ended_by_the_next_run(scene: Scene) -> None:
    scene.do(("turn", 0), scene.run())
    for _ in kills_in_rebuilds(scene, "promote"):
        scene.demand_served(scene.do(scene.run()))
    scene.demand_all(scene.do())


@pytest.mark.long
@alone_or_shared
def test_a_run_that_was_killed_before_or_after_a_step_of_promotion_is_ended_by_the_next(scene: Scene) -> None:
    scene.do(("turn", 0), scene.run())
    for step in scene.kind.around:
        assert killed_in_a_rebuild(scene, step)
        scene.demand_served(scene.do(scene.run()))
    scene.demand_all(scene.do_a_turn())


@pytest.mark.long
@every_kind
@alone
def test_a_run_killed_while_dropping_an_index_leaves_nothing_of_it(scene: Scene) -> None:
    scene.do(("turn", 0), scene.run())
    for _ in kills_in_rebuilds(scene, "drop"):
        scene.demand_served(scene.do(scene.run()))
    scene.demand_all(scene.do_a_turn())


@pytest.mark.long
@alone_or_shared
def test_a_kill_and_a_changed_declaration_leave_alias_and_ledger_consistent(scene: Scene) -> None:
    """The next run gives up what it cannot go on with, and dies as well, before it serves anything of its own."""
    scene.do(("turn", 0), scene.run())
    for _ in kills_in_rebuilds(scene, "promote"):
        scene.turn += 1
        maintained = Step((f"{scene.kind.target}.maintain",), "before")
        assert act(scene.site, ("turn", scene.turn), ("arm", maintained), scene.run()) is None
        scene.demand_agreement(scene.do())
        scene.demand_all(scene.do(scene.run()))


@pytest.mark.long
@every_kind
@alone
@pytest.mark.parametrize("then", ["run", "promote"])
def test_a_generation_whose_promotion_was_killed_is_promoted_or_not(scene: Scene, then: str) -> None:
    met, moved = 0, False
    for step in scene.kind.within("promote"):
        old = ("turn", 0), scene.run(generation=""), *((("promote", ""),) if moved else ())
        new = ("turn", 1), scene.run(generation="v2")
        scene.demand_agreement(scene.do(*old, *new))
        if act(scene.site, ("arm", step), ("promote", "v2")) is not None:
            break
        met, moved = met + 1, True
        scene.demand_either(scene.site.expected(0), scene.site.expected(1))
        if then == "run":
            scene.demand_agreement(scene.do(scene.run()))
        said = scene.do(("promote", "v2"))
        scene.demand_agreement(said)
        assert {each.generation for each in said} == {"v2"}
        assert scene.found().rows == scene.site.expected(1)
    assert met >= 2


@pytest.mark.long
@pytest.mark.parametrize("kind", [each for each in KINDS if each.tables], ids=str)
def test_an_interrupted_first_promotion_of_a_shared_index_is_completed(kind: Kind, tmp_path: Path) -> None:
    """Nothing is served before: it starts again for each step."""
    for met, step in enumerate(kind.within("promote")):
        folder = tmp_path / f"{met}"
        with kind.place(folder) as (target, reader):
            scene = Scene(kind, kind.site(folder / "project", target, shared=True), reader)
            died = act(scene.site, ("turn", 0), ("arm", step), scene.run()) is None
            if died:
                scene.demand_all(scene.do(scene.run()))
        if not died:
            break
    assert met >= 1
