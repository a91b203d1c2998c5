"""The operator in runs of DAGs on a real Airflow."""

from __future__ import annotations

import re
import signal
import time
from datetime import datetime
from pathlib import Path

from dag_runs import end, run, start

import instep
from conftest import write

_HEAD = """\
from datetime import timedelta

from airflow.sdk import DAG
from instep_airflow.operators import InstepRunOperator

"""


def _milliseconds(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp() * 1_000)


def test_a_task_brings_an_index_in_step_and_returns_what_it_did(dags: Path, project: Path) -> None:
    dag = dags / "well.py"
    dag.write_text(f"""{_HEAD}
with DAG("well", params={{"entity": "Note"}}) as dag:
    first = InstepRunOperator(task_id="first", project="{project}", entities="{{{{ params.entity }}}}")
    first >> InstepRunOperator(task_id="again", project="{project}", entities=["{{{{ params.entity }}}}"])
""")
    ran = run(dag)
    assert ran.states == {"first": ("success", 1), "again": ("success", 1)}, ran.log
    (served,) = instep.load(project).status()
    first, again = (ran.tasks[name]["xcom"]["Note@global"] for name in ("first", "again"))
    assert (first["state"], first["counts"]["written"], first["rows"]) == ("COMPLETED", 2, 2)
    assert (first["instance"], served.watermark) == (served.instance, _milliseconds(first["complete_up_to"]))
    assert (again["state"], again["unchanged"], again["instance"]) == ("UP_TO_DATE", 2, served.instance)
    assert "Note: 2 done" in ran.log


def test_the_dag_of_the_documentation_runs(dags: Path, project: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "orchestrators.md").read_text()
    (block,) = re.findall(r"^```python\n(from airflow.*?)^```", page, re.DOTALL | re.MULTILINE)
    dag = dags / "page.py"
    dag.write_text(block.replace("/srv/notes", str(project)).replace('schedule="@hourly"', "schedule=None"))
    ran = run(dag)
    assert ran.states == {"index": ("success", 1), "there": ("success", 1)}, ran.log
    there = ran.tasks["there"]["xcom"]
    assert there["instances"]["Note@global"] == ran.tasks["index"]["xcom"]["Note@global"]["instance"]


def test_only_what_may_pass_is_tried_again(dags: Path, project: Path, tmp_path: Path) -> None:
    """A retry after failed documents would find them unchanged, do nothing, and succeed."""
    write(project, "third", "broken")
    away = tmp_path / "away"
    (away / "docs").mkdir(parents=True)
    write(away, "first")
    ledger = "ledger: postgresql://me@127.0.0.1:9/none\n"
    (away / "instep.yaml").write_text(ledger + (project / "instep.yaml").read_text())
    (away / "parsing.py").write_text((project / "parsing.py").read_text())
    dag = dags / "ill.py"
    dag.write_text(f"""{_HEAD}
with DAG("ill", default_args={{"retries": 1, "retry_delay": timedelta(0)}}) as dag:
    InstepRunOperator(task_id="mistake", project="{project}", entities="Nota")
    InstepRunOperator(task_id="nowhere", project="{tmp_path / "nowhere"}")
    broken = InstepRunOperator(task_id="broken", project="{project}")
    allowed = InstepRunOperator(task_id="allowed", project="{project}", full_refresh=True, allow_failures=True)
    allowed.trigger_rule = "all_done"
    broken >> allowed
    InstepRunOperator(task_id="away", project="{away}")
""")
    ran = run(dag)
    assert ran.states == {
        "mistake": ("failed", 1),
        "nowhere": ("failed", 1),
        "broken": ("failed", 1),
        "allowed": ("success", 1),
        "away": ("failed", 2),
    }, ran.log
    assert "(did you mean Note?)" in ran.log
    assert "third.md: ValueError" in ran.log


def test_a_task_that_is_killed_stops_and_its_next_try_resumes_the_job(dags: Path, project: Path) -> None:
    write(project, "second", "slow")
    dag = dags / "killed.py"
    dag.write_text(f"""{_HEAD}
with DAG("killed") as dag:
    InstepRunOperator(task_id="index", project="{project}", retries=1, retry_delay=timedelta(0))
""")
    process = start(dag)
    deadline = time.monotonic() + 120
    while not (project / "parsed").exists() or "second.md" not in (project / "parsed").read_text():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    (project / "fast").touch()
    killed = time.monotonic()
    process.send_signal(signal.SIGTERM)
    ran = end(process)
    assert time.monotonic() - killed < 300  # Not after the ten minutes that the document takes.
    assert ran.states == {"index": ("success", 2)}, ran.log
    assert "stopped; the next try resumes it" in ran.log
    (job,) = instep.load(project).jobs()
    assert (job.id, job.counts.written) == (ran.tasks["index"]["xcom"]["Note@global"]["job"], 2)
