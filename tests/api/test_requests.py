"""Jobs that are asked for: made, stopped, resumed, tried again, with what is said of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from instep.api.application import create_app
from instep.app import Instep
from instep.container import Container
from instep.domain.settings import JobSettings, settings_in, together
from instep.pipeline.engine.inline import InlineEngine
from instep.planning.plan import as_job_says
from instep.targets.opensearch.target import OpenSearchTarget
from tests.api.conftest import TOKEN, bearer, served, write
from tests.api.test_own_worker import PROGRAM, begun
from tests.waiting import until


def work(instep: Instep) -> None:
    """What any worker would do."""
    instep.worker(until_idle=True, engine="inline")


def ask(client: httpx.Client, **body: Any) -> Any:
    answer = client.post("/api/jobs", json={"useDistributedIndexing": True, **body})
    assert answer.status_code == 202, answer.text
    return answer.json()


def newest(client: httpx.Client) -> Any:
    return client.get("/api/jobs?limit=1").json()["items"][0]


def test_a_request_is_a_want_that_a_worker_makes_a_job_of(client: httpx.Client, instep: Instep, folder: Path) -> None:
    write(folder, 3)
    asked = ask(client, entities=["Document"])
    (want,) = asked["wants"]
    assert (want["state"], want["by"], want["refs"]) == ("Idle", "api", ["Document@global"])
    assert (asked["job"], asked["worker"]) == (None, False)
    work(instep)
    job = newest(client)
    assert (job["state"], job["counts"]["written"]) == ("COMPLETED", 3)
    (ended,) = client.get("/api/wants?ended=true").json()["items"]
    assert (ended["id"], ended["state"]) == (want["id"], "Successful")
    assert client.get("/api/wants").json()["items"] == []


def test_an_index_becomes_empty_only_with_allow_empty_in_the_request(
    client: httpx.Client, instep: Instep, folder: Path
) -> None:
    write(folder, 3)
    instep.run()
    for each in (folder / "docs").iterdir():
        each.unlink()
    ask(client, recreateIndex=True)
    work(instep)
    assert instep.status()[0].documents == 3
    ask(client, recreateIndex=True, allowEmpty=True)
    work(instep)
    assert newest(client)["configuration"]["settings"] == {"Document@global": {"allow_empty": True}}
    assert instep.status()[0].documents == 0


def test_it_may_say_the_rows_of_a_slice(client: httpx.Client, instep: Instep, folder: Path) -> None:
    """All of these documents are one slice of each bucket otherwise."""
    (folder / "instep.yaml").write_text((folder / "instep.yaml").read_text() + "    buckets: 1\n")
    write(folder, 4, rows=90)
    ask(client, sliceRows=100, payLoadSize="2MB")
    work(type(instep)(load_again(folder)))
    job = newest(client)
    assert job["configuration"]["settings"] == {"Document@global": {"slice_rows": 100, "payload_bytes": 2 << 20}}
    assert job["slices"]["COMPLETED"] == 4
    found = client.get(f"/api/jobs/{job['id']}/slices?limit=3").json()
    rest = client.get(f"/api/jobs/{job['id']}/slices", params={"after": found["next"]}).json()
    assert [each["index"] for each in found["items"] + rest["items"]] == [0, 1, 2, 3]
    assert rest["next"] is None
    after = client.get(f"/api/jobs/{job['id']}/slices", params={"entity": "Document@global", "after": 2}).json()
    assert [each["index"] for each in after["items"]] == [3]
    assert client.get(f"/api/jobs/{job['id']}/slices/grid").json()["parts"] == [
        {"ref": "Document@global", "generation": "", "states": "CCCC"}
    ]
    numbers = client.get(f"/api/jobs/{job['id']}/statistics").json()
    assert numbers["entities"]["Document"] == numbers["totals"]
    assert (numbers["totals"]["total"], numbers["totals"]["written"]) == (4, 4)


def load_again(folder: Path) -> Any:
    from instep.project import load_project

    return load_project(folder)


def test_recreating_builds_a_new_index_beside_the_served_one(
    client: httpx.Client, instep: Instep, folder: Path
) -> None:
    write(folder, 2)
    instep.run()
    before = client.get("/api/partitions").json()["items"][0]
    assert (before["state"], before["documents"], before["promoted"]) == ("Indexed", 2, True)
    ask(client, entities=["Document"])
    work(instep)
    assert newest(client)["parts"][0]["fresh"] is False
    ask(client, entities=["Document@global"], recreateIndex=True)
    assert client.get("/api/search?q=word0x1&mode=text").json()["items"]
    work(instep)
    after = client.get("/api/partitions").json()["items"][0]
    assert newest(client)["parts"][0]["fresh"] is True
    assert after["physical"] != before["physical"]
    history = client.get("/api/partitions/Document@global/history").json()["items"]
    assert [(each["reason"], each["canonical"]) for each in history] == [("rebuild", True), ("first build", False)]
    found = client.get("/api/search?q=word1x7&mode=text&k=1").json()["items"][0]
    origin = client.get("/api/why", params={"ref": "Document", "id": found["chunk_id"]}).json()
    assert origin["job"]["id"] == newest(client)["id"]


def test_stop_and_resume(client: httpx.Client, instep: Instep, folder: Path) -> None:
    write(folder, 2)
    job = planned(instep)
    stopped = client.post(f"/api/jobs/{job}/stop")
    assert (stopped.status_code, stopped.json()["state"]) == (202, "STOPPED")
    assert client.post(f"/api/jobs/{job}/retry").status_code == 409
    assert client.get("/api/jobs?state=STOPPED").json()["items"][0]["id"] == job
    assert client.get("/api/jobs?state=RUNNING&state=FAILED").json()["items"] == []
    resumed = client.post(f"/api/jobs/{job[:8]}/resume")
    assert (resumed.status_code, resumed.json()["state"]) == (202, "RUNNING")
    work(instep)
    assert newest(client)["state"] == "COMPLETED"
    again = client.post(f"/api/jobs/{job}/resume")
    assert (again.status_code, again.json()["title"]) == (409, "Conflict")


def planned(instep: Instep) -> str:
    """A job that has begun, without any work done: its worker was asked to stop."""
    from instep.telemetry.progress import Silent

    class Stopper(Silent):
        def begin(self, entity: str, total: int | None, unit: str) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        instep.run(progress=Stopper())
    job = instep.jobs()[0].id
    instep.resume_job(job)
    return job


def test_failed_documents_are_retried_on_request(client: httpx.Client, instep: Instep, folder: Path) -> None:
    write(folder, 2)
    (folder / "docs" / "broken.pdf").write_bytes(b"%PDF-1.4 this is none")
    instep.run()
    job = newest(client)
    assert job["state"] == "COMPLETED_WITH_ERRORS"
    (failed,) = client.get("/api/failures?entity=Document").json()["items"]
    assert (failed["attempts"], failed["uri"].rpartition("/")[2]) == (1, "broken.pdf")
    again = client.post(f"/api/jobs/{job['id']}/retry").json()
    assert [each["refs"] for each in again["wants"]] == [["Document@global"]]
    work(instep)
    assert client.get("/api/failures").json()["items"][0]["attempts"] == 2
    assert client.post("/api/failures/retry", json={"entities": ["Document"]}).status_code == 202
    work(instep)
    assert client.get("/api/failures").json()["items"][0]["attempts"] == 3
    ask(client)
    work(instep)
    assert client.get("/api/failures").json()["items"][0]["attempts"] == 3, "who says nothing of it leaves it alone"
    assert len(client.get("/api/jobs").json()["items"]) == 4


def test_a_failure_that_nobody_mends_is_dismissed(client: httpx.Client, instep: Instep, folder: Path) -> None:
    write(folder, 2)
    for name in ("broken", "broken too"):
        (folder / "docs" / f"{name}.pdf").write_bytes(b"%PDF-1.4 this is none")
    instep.run()
    first, second = client.get("/api/failures").json()["items"]
    assert client.post("/api/failures/dismiss", json={"uris": ["other"]}).json() == []
    assert client.post("/api/failures/dismiss", json={"uris": []}).status_code == 422
    dismissed = client.post("/api/failures/dismiss", json={"uris": [first["uri"]], "entities": ["Document"]}).json()
    assert [each["uri"] for each in dismissed] == [first["uri"]]
    assert client.get("/api/failures").json()["items"] == [second]


def test_nothing_is_asked_again_where_nothing_failed(client: httpx.Client, instep: Instep, folder: Path) -> None:
    write(folder, 1)
    instep.run()
    again = client.post(f"/api/jobs/{newest(client)['id']}/retry")
    assert (again.status_code, again.json()) == (202, {"wants": [], "job": None, "worker": False})


def test_a_want_of_ones_own_and_its_end(client: httpx.Client) -> None:
    made = client.post("/api/wants", json={"refs": ["Document"], "fresh_within": 60_000}).json()
    assert made["fresh_within"] == 60_000
    assert [each["id"] for each in client.get("/api/wants?ref=Document").json()["items"]] == [made["id"]]
    assert client.post(f"/api/wants/{made['id']}/cancel").json()["state"] == "Canceled"


def test_jobs_page_by_page(client: httpx.Client, instep: Instep, folder: Path) -> None:
    for number in range(3):
        write(folder, number + 1)
        instep.run()
    first = client.get("/api/jobs?limit=2").json()
    second = client.get("/api/jobs", params={"limit": 2, "after": first["next"]}).json()
    assert len({each["id"] for each in first["items"] + second["items"]}) == 3
    assert second["next"] is None
    assert client.get("/api/jobs?limit=3").json()["next"] is None, "all of them are on it"
    assert client.get("/api/jobs?after=nothing").status_code == 404
    assert client.get("/api/jobs?limit=1001").status_code == 422


def test_a_job_that_is_resumed_has_a_worker_and_work_that_is_left_to_others_has_none(
    instep: Instep, folder: Path
) -> None:
    write(folder, 1)
    app = create_app(instep, token=TOKEN, loopback=True, worker=[sys.executable, "-c", PROGRAM, str(folder)])
    with served(app) as address, httpx.Client(base_url=address, headers=bearer(), verify=False) as client:
        job = planned(instep)
        client.post(f"/api/jobs/{job}/stop")
        assert ask(client)["worker"] is False
        assert begun(folder) == []
        assert client.post(f"/api/jobs/{job}/resume").status_code == 202
        until(lambda: len(begun(folder)) == 1)
        (folder / "go").touch()


def test_a_full_page_is_the_last_one_if_nothing_is_behind_it(client: httpx.Client) -> None:
    asked = [client.post("/api/wants", json={"refs": ["Document"]}).json()["id"] for _ in range(2)]
    first = client.get("/api/wants?limit=1").json()
    last = client.get("/api/wants", params={"limit": 1, "after": first["next"]}).json()
    assert {each["id"] for each in first["items"] + last["items"]} == set(asked)
    assert last["next"] is None
    partitions = client.get("/api/partitions?limit=1").json()
    assert ([each["ref"] for each in partitions["items"]], partitions["next"]) == (["Document@global"], None)


def test_settings_of_the_oldest_want_come_first() -> None:
    said = [None, JobSettings(slice_rows=200), JobSettings(slice_rows=300, requests=7, retry_failures=True)]
    assert together(said) == JobSettings(200, None, 7, retry_failures=True)
    assert settings_in({"settings": {"A@global": {"slice_rows": 7}}}, "A@global") == JobSettings()
    assert settings_in({}, "A@global") == settings_in({"settings": 7}, "A@global") == JobSettings()


OPENSEARCH = """\
name: far
targets:
  far: {type: opensearch, uri: "http://127.0.0.1:9", max_payload_bytes: 5000000, max_requests: 2}
entities:
  Document: {source: {type: files, path: docs}, target: far}
"""


def test_bounds_of_requests_reach_the_target_of_the_job_alone(folder: Path) -> None:
    (folder / "instep.yaml").write_text(OPENSEARCH)
    container = Container(load_again(folder))
    (setup,) = container.setups()
    ledger = container.ledger()
    ledger.workers.register("ann", kind="worker", host="here", pid=1)
    said = {"settings": {"Document@global": {"payload_bytes": 100 << 20, "requests": 100}}}
    ledger.jobs.begin("asked", "ann", said)
    ledger.jobs.begin("plain", "ann", {})

    def bounds(job: str) -> tuple[int, int]:
        target = as_job_says(setup, ledger, job).target
        assert isinstance(target, OpenSearchTarget)
        return target.max_payload_bytes, target.max_requests

    assert bounds("plain") == (5_000_000, 2)
    payload, requests = bounds("asked")
    assert requests == 100
    assert payload * requests <= 256_000_000, "what is in flight stays bounded"
    ledger.close()


@pytest.mark.parametrize(("declared", "master"), [("local[*]", "local[3]"), ("spark://host:7077", "spark://host:7077")])
def test_threads_of_a_worker_are_those_of_its_engines(folder: Path, declared: str, master: str) -> None:
    text = (folder / "instep.yaml").read_text()
    (folder / "instep.yaml").write_text(f"spark: {{master: '{declared}', shared: true}}\n{text}")
    container = Container(load_again(folder), threads=3)
    (setup,) = container.setups()
    inline = container.engines.engine(container.engines.choose(setup, 1))
    assert isinstance(inline, InlineEngine)
    assert inline._threads == 3
    assert container.engines.spark_settings().master == master
