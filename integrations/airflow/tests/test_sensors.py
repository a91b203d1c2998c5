"""The sensor and its trigger: with a worker beside them, and a real triggerer."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from dag_runs import end, start

import instep
from conftest import write
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
