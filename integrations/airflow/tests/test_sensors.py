"""The sensor and its trigger: with a worker beside them, and a real triggerer."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred
from dag_runs import end, run, start

import instep
from conftest import write
from instep_airflow.sensors import InstepPartitionSensor
from instep_airflow.triggers import WantTrigger


async def fired(trigger: WantTrigger) -> dict[str, Any]:
    """The payload of the only event of a trigger that was stored and read again."""
    _, arguments = trigger.serialize()
    events = [event.payload async for event in WantTrigger(**arguments).run()]
    (event,) = events
    return dict(event)


def test_a_trigger_waits_until_a_worker_has_built_what_is_wanted(project: Path) -> None:
    opened = instep.load(project)
    want = opened.want(["Note"])

    async def waited() -> dict[str, Any]:
        waiting = asyncio.create_task(fired(WantTrigger(str(project), want.id, 0.05)))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        await asyncio.to_thread(opened.worker, until_idle=True)
        return await asyncio.wait_for(waiting, 30)

    event = asyncio.run(waited())
    (served,) = opened.status()
    assert (event["state"], event["reason"]) == ("Successful", None)
    assert event["instances"] == {"Note@global": served.instance}


def test_a_trigger_tells_why_what_is_wanted_could_not_be_built(project: Path) -> None:
    for name in ("first", "second"):
        write(project, name, "broken")
    opened = instep.load(project)
    want = opened.want(["Note"])
    opened.worker(until_idle=True)
    event = asyncio.run(fired(WantTrigger(str(project), want.id)))
    assert event["state"] == "Failed"
    assert event["reason"] == opened.wants(ended=True)[0].error


def test_a_trigger_says_that_a_want_or_a_project_is_not_there(project: Path, tmp_path: Path) -> None:
    event = asyncio.run(fired(WantTrigger(str(project), "5e0e3c5e-0000-0000-0000-000000000000")))
    assert (event["state"], "not known" in event["reason"]) == ("Failed", True)
    event = asyncio.run(fired(WantTrigger(str(tmp_path / "nowhere"), "5e0e3c5e")))
    assert (event["state"], "nowhere" in event["reason"]) == ("Failed", True)


def test_what_a_person_ends_is_wanted_no_more(project: Path) -> None:
    opened = instep.load(project)
    want = opened.want(["Note"])
    asyncio.run(WantTrigger(str(project), want.id).on_kill())
    assert [(each.id, each.state) for each in opened.wants(ended=True)] == [(want.id, "Canceled")]


def test_a_sensor_waits_for_a_worker_that_others_run(dags: Path, project: Path) -> None:
    dag = dags / "sensed.py"
    dag.write_text(f"""
from airflow.sdk import DAG
from instep_airflow.sensors import InstepPartitionSensor

with DAG("sensed") as dag:
    InstepPartitionSensor(
        task_id="there",
        project="{project}",
        partition="Note",
        complete_up_to="{{{{ dag_run.run_after }}}}",
        poke_interval=0.2,
    )
""")
    opened, over = instep.load(project), threading.Event()
    opened.run()
    before = opened.status()[0].watermark

    def work() -> None:
        while not over.wait(0.2):
            opened.worker(until_idle=True)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        ran = end(start(dag))
    finally:
        over.set()
        worker.join()
    assert ran.states == {"there": ("success", 1)}, ran.log
    (served,) = opened.status()
    assert ran.tasks["there"]["xcom"]["instances"] == {"Note@global": served.instance}
    assert (served.watermark or 0) > (before or 0)
    assert "airflow: sensed.there" in opened.wants(ended=True)[0].by


SENSED = """
from airflow.sdk import DAG
from instep_airflow.sensors import InstepPartitionSensor

with DAG("sensed") as dag:
    InstepPartitionSensor(task_id="there", project="{project}", partition="{partition}", poke_interval=0.1, {options})
"""


def sensed(dags: Path, project: Path, partition: str = "Note", options: str = "retries=0") -> Path:
    dag = dags / "sensed.py"
    dag.write_text(SENSED.format(project=project, partition=partition, options=options))
    return dag


def test_a_build_that_fails_fails_the_task_with_its_reason(dags: Path, project: Path) -> None:
    for name in ("first", "second"):
        write(project, name, "broken")
    opened = instep.load(project)
    running = start(sensed(dags, project))
    wanted(project)
    opened.worker(until_idle=True)
    ran = end(running)
    assert ran.states == {"there": ("failed", 1)}, ran.log
    (want,) = opened.wants(ended=True)
    assert want.error
    assert f"Note Failed: {want.error}" in ran.log


def deferred(project: Path, run_id: str = "first run") -> TaskDeferred:
    """How a try of the task ends that has to wait."""
    sensor = InstepPartitionSensor(task_id="there", project=str(project), partition="Note", timeout=7)
    ti = SimpleNamespace(dag_id="sensed", task_id="there", run_id=run_id, map_index=-1)
    with pytest.raises(TaskDeferred) as found:
        sensor.execute({"ti": ti})
    return found.value


def test_a_sensor_waits_no_longer_than_its_timeout(project: Path) -> None:
    assert deferred(project).timeout == timedelta(seconds=7)


def test_another_try_of_a_run_waits_for_the_same_want_and_another_run_for_one_of_its_own(project: Path) -> None:
    first, again, other = (deferred(project, name).trigger.serialize() for name in ("one", "one", "two"))
    assert first == again != other
    assert len(instep.load(project).wants()) == 2


def test_an_entity_that_is_not_there_is_not_tried_again(dags: Path, project: Path) -> None:
    ran = run(sensed(dags, project, "Nate", "retries=3"))
    assert ran.states == {"there": ("failed", 1)}, ran.log
    assert "did you mean Note?" in ran.log


def wanted(project: Path) -> None:
    """Wait until the sensor has made its want."""
    opened = instep.load(project)
    for _ in range(600):
        if opened.wants():
            return
        time.sleep(0.1)
    raise AssertionError("no want was made within a minute")
