"""An engine may start as soon as a plan finds work, while the rest of it is made."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.container import Container
from instep.entities import ownership
from instep.entities.plan_request import PlanOptions
from instep.planning import plan
from instep.project import Project
from tests.doubles.container import workshop_of


def test_it_is_told_of_work_before_the_target_is_asked_and_of_none_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "one.md").write_text("# One\n")
    targets = {"index": {"type": "lance", "uri": "index"}}
    entities = {"Page": {"source": {"type": "files", "path": "docs"}}}
    declared = Project.model_validate({"name": "p", "root": tmp_path, "targets": targets, "entities": entities})
    instep.Instep(declared).run()
    done: list[str] = []
    demand = ownership.demand_ownership

    def asked(*args: Any) -> Any:
        done.append("target")
        return demand(*args)

    monkeypatch.setattr(plan, "demand_ownership", asked)

    def planned() -> None:
        with closing(Container(declared)) as container, closing(container.ledger()) as ledger:
            workshop = workshop_of(declared, ledger)
            (setup,) = workshop.setups()
            choose = workshop.engines.choose
            plan.plan_entity(setup, ledger, PlanOptions(), "", choose=choose, begin=lambda: done.append("engine"))
            workshop.close()

    planned()
    assert done == []
    (tmp_path / "docs" / "one.md").write_text("# Another\n")
    planned()
    assert done == ["engine", "target"]
