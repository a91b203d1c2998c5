"""Materializations of what was built outside of Dagster."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from test_component import NOTE

import instep
from conftest import definitions, write, write_rows
from instep.orchestrators import built_after
from instep_dagster import following

FOLLOW = "  follow: true\n"


@pytest.fixture
def dagster() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def look(defs: dg.Definitions, dagster: dg.DagsterInstance, cursor: str | None) -> tuple[list[Any], str]:
    """One tick of the sensor, with its events reported as Dagster's daemon does."""
    (sensor,) = defs.sensors or ()
    assert isinstance(sensor, dg.SensorDefinition)
    with dg.build_sensor_context(instance=dagster, cursor=cursor, definitions=defs) as context:
        tick = sensor.evaluate_tick(context)
    for each in tick.asset_events:
        dagster.report_runless_asset_event(each)
    assert tick.cursor is not None
    return list(tick.asset_events), tick.cursor


def values(event: dg.AssetMaterialization) -> dict[str, Any]:
    return {name: each.value for name, each in event.metadata.items()}


def test_what_a_worker_builds_is_a_materialization_with_its_rows_and_instance(
    tmp_path: Path, project: Path, dagster: dg.DagsterInstance
) -> None:
    instep.load(project).run(["Note"])
    defs = definitions(tmp_path, f"  project: {project}\n  entities: [Note]\n{FOLLOW}")
    told, cursor = look(defs, dagster, None)
    assert told == []  # From the first look on.
    write(project, "third")
    done = instep.load(project).run(["Note"])
    (told,), cursor = look(defs, dagster, cursor)
    (served,) = instep.load(project).status(["Note"])
    assert told.asset_key == NOTE
    found = values(told)
    assert (found["instance"], found["job"], found["written"]) == (served.instance, done[0].job_id, 1)
    assert found["dagster/row_count"] == 3
    assert found["complete_up_to"] * 1_000 == served.watermark
    assert look(defs, dagster, cursor)[0] == []


def test_what_dagster_built_itself_is_not_told_again(
    tmp_path: Path, project: Path, dagster: dg.DagsterInstance
) -> None:
    defs = definitions(tmp_path, f"  project: {project}\n{FOLLOW}")
    _, cursor = look(defs, dagster, None)
    assert dg.materialize(list(defs.assets or []), instance=dagster).success  # type: ignore[arg-type]  # they are assets alone
    assert look(defs, dagster, cursor)[0] == []


def test_of_several_jobs_the_last_has_the_rows_that_are_served(
    tmp_path: Path, project: Path, dagster: dg.DagsterInstance
) -> None:
    defs = definitions(tmp_path, f"  project: {project}\n{FOLLOW}")
    _, cursor = look(defs, dagster, None)
    instep.load(project).run()
    write(project, "third")
    instep.load(project).run()
    told, _ = look(defs, dagster, cursor)
    notes = [values(each) for each in told if each.asset_key == NOTE]
    assert [(each["written"], each.get("dagster/row_count")) for each in notes] == [(2, None), (1, 3)]


def test_a_namespace_is_the_partition_that_was_built(tmp_path: Path, dagster: dg.DagsterInstance) -> None:
    folder = write_rows(tmp_path)
    defs = definitions(tmp_path, f"  project: {folder}\n{FOLLOW}")
    _, cursor = look(defs, dagster, None)
    instep.load(folder).run(["Ticket@42/9971"])
    (told,), _ = look(defs, dagster, cursor)
    assert (told.asset_key, told.partition) == (dg.AssetKey(["rows", "Ticket"]), "42/9971")
    assert values(told)["written"] == 1


def test_of_a_job_over_many_namespaces_each_is_told_once_over_several_looks(
    tmp_path: Path, dagster: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    scopes = [f"42/{each}" for each in range(9_000, 9_025)]
    folder = write_rows(tmp_path, scopes)
    defs = definitions(tmp_path, f"  project: {folder}\n{FOLLOW}")
    _, cursor = look(defs, dagster, None)
    instep.load(folder).run()
    monkeypatch.setattr(following, "built_after", partial(built_after, limit=60))
    told: list[Any] = []
    while True:
        some, after = look(defs, dagster, cursor)
        told += some
        if after == cursor:
            break
        cursor = after
    assert sorted(each.partition for each in told) == scopes


def test_what_a_run_of_dagster_is_still_at_waits_until_that_has_told_it(
    tmp_path: Path, project: Path, dagster: dg.DagsterInstance
) -> None:
    defs = definitions(tmp_path, f"  project: {project}\n  entities: [Note]\n{FOLLOW}")
    _, cursor = look(defs, dagster, None)
    looks: list[tuple[list[Any], str]] = []

    @dg.asset(deps=[NOTE])
    def behind() -> None:
        """While the run that has built the index goes on."""
        looks.append(look(defs, dagster, cursor))

    assert dg.materialize([*(defs.assets or []), behind], instance=dagster).success  # type: ignore[list-item]  # they are assets alone
    write(project, "third")
    instep.load(project).run(["Note"])
    (told, _), (now, _) = looks[0], look(defs, dagster, looks[0][1])
    assert told == []
    assert [values(each)["written"] for each in now] == [1]


def test_another_ledger_is_read_from_its_beginning(tmp_path: Path, project: Path, dagster: dg.DagsterInstance) -> None:
    defs = definitions(tmp_path, f"  project: {project}\n  entities: [Note]\n{FOLLOW}")
    instep.load(project).run(["Note"])
    told, _ = look(defs, dagster, "1000")
    assert [each.asset_key for each in told] == [NOTE]
