"""Lineage as a server of OpenLineage gets it: valid, with stable ids, complete after crashes and outages."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from jsonschema import ValidationError

import instep
from instep.domain import events as e
from instep.domain.counts import Counts
from instep.domain.instances import Instance, InstanceState, Reason
from instep.domain.jobs import JobState
from instep.domain.open_lineage import Dataset, OpenRuns, Translator
from instep.jobs import lineage_outbox
from instep.jobs.lineage_outbox import LineageOutbox
from instep.ledger.open import open_ledger
from instep.system import SystemClock
from instep.telemetry.lineage_receivers import FileReceiver
from instep.telemetry.progress import Silent
from tests.e2e import corpus
from tests.jobs.progress_log import ProgressLog
from tests.telemetry.receiver import LineageServer, check, receiving

#: Runs the project here, and is killed when this is called; before a wave, when its start is told.
_KILLED = """
import os, pathlib, pkgutil, signal, sys, time
import instep
from instep.jobs import lineage_outbox as outbox
outbox._HOLD, outbox._EVERY = 0, 0.02
owner, name = sys.argv[1:]
def last(*_args, **_kwargs):
    while name == "run" and not pathlib.Path("lineage.ndjson").exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(pkgutil.resolve_name(owner), name, last)
instep.load(".").run()
"""


@pytest.fixture
def server() -> Iterator[LineageServer]:
    with receiving() as found:
        yield found


def project(folder: Path, receiver: str, *, documents: int = 3, more: str = "") -> None:
    corpus.write(folder / "docs", range(documents))
    corpus.project(folder, folder / "docs", extra=f"lineage: {{openlineage: '{receiver}'{more}}}")


def killed(folder: Path, owner: str, name: str) -> None:
    done = subprocess.run([sys.executable, "-c", _KILLED, owner, name], cwd=folder, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [each["eventType"] for each in events]


def different(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without those that came twice: a process that was killed had not noted yet that they were sent."""
    return [each for place, each in enumerate(events) if each not in events[:place]]


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_a_build_and_a_refresh_are_runs_as_the_specification_has_them(tmp_path: Path, server: LineageServer) -> None:
    project(tmp_path, server.url, more=", api_key: a-key")
    (built,) = instep.load(tmp_path).run()
    corpus.write(tmp_path / "docs", range(3, 5))
    instep.load(tmp_path).run()
    assert kinds(server.events) == ["START", "COMPLETE", "START", "COMPLETE"]
    for event in server.events:
        check(event)
    ids = [each["run"]["runId"] for each in server.events]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    assert server.keys == {"Bearer a-key"}
    complete = server.events[1]
    assert (complete["job"]["namespace"], complete["job"]["name"]) == ("test", "Document@global")
    ((source,), (index,)) = complete["inputs"], complete["outputs"]
    assert (source["namespace"], source["name"]) == ("file", str(tmp_path / "docs"))
    assert source["inputFacets"]["inputStatistics"]["rowCount"] == 3
    assert (index["namespace"], index["name"]) == ("file", str(tmp_path / ".instep/index/Document"))
    assert index["outputFacets"]["outputStatistics"]["rowCount"] == built.counts.rows_written
    assert {"name": "text", "type": "string"} in index["facets"]["schema"]["fields"]
    assert complete["run"]["facets"]["instep"]["counts"]["read"] == 3


@pytest.mark.parametrize(
    ("field", "wrong"),
    [("eventTime", "yesterday"), ("producer", "no address of anything"), ("eventType", "ENDED")],
)
def test_an_event_that_is_not_as_the_specification_has_it_is_noticed(field: str, wrong: str) -> None:
    (start,) = told(BUILDING)
    check(start)
    with pytest.raises(ValidationError, match=wrong):
        check(start | {field: wrong})


def test_a_build_that_fails_ends_with_its_reason(tmp_path: Path, server: LineageServer) -> None:
    project(tmp_path, server.url)
    for page in (tmp_path / "docs").rglob("*.md"):
        page.write_bytes(b"\0\0")
    instep.load(tmp_path).run()
    assert kinds(server.events) == ["START", "FAIL"]
    for event in server.events:
        check(event)
    assert "failed" in server.events[1]["run"]["facets"]["errorMessage"]["message"]


def test_a_retry_of_failures_of_which_none_passes_is_a_run_that_failed(tmp_path: Path, server: LineageServer) -> None:
    """As is its job; the index is what it was before, and served."""
    project(tmp_path, server.url)
    (tmp_path / "docs").mkdir(exist_ok=True)
    (tmp_path / "docs" / "broken.md").write_bytes(b"\0\0")
    opened = instep.load(tmp_path)
    opened.run()
    (result,) = opened.run(retry_failures=True)
    assert str(result.state) == "FAILED"
    assert kinds(server.events) == ["START", "COMPLETE", "START", "FAIL"]
    check(server.events[3])
    assert server.events[3]["run"]["facets"]["errorMessage"]["message"] == "all 1 failed"


def test_a_job_that_is_killed_and_resumed_is_one_run(tmp_path: Path) -> None:
    file = tmp_path / "lineage.ndjson"
    project(tmp_path, "lineage.ndjson")
    killed(tmp_path, "instep.jobs.wave:WaveRunner", "run")
    assert kinds(lines(file)) == ["START"]
    instep.load(tmp_path).run()
    assert kinds(different(lines(file))) == ["START", "COMPLETE"]
    assert len({each["run"]["runId"] for each in lines(file)}) == 1


def test_what_was_committed_and_not_sent_is_sent_by_the_next_run(tmp_path: Path) -> None:
    file = tmp_path / "lineage.ndjson"
    project(tmp_path, "lineage.ndjson")
    killed(tmp_path, "instep.telemetry.lineage_receivers:FileReceiver", "send")
    assert lines(file) == []
    instep.load(tmp_path).run()
    assert kinds(lines(file)) == ["START", "COMPLETE"]
    instep.load(tmp_path).run()
    assert len(lines(file)) == 2


def test_a_server_that_is_away_stops_nothing_and_gets_all_of_it_later(tmp_path: Path, server: LineageServer) -> None:
    project(tmp_path, server.url)
    server.answer = 503
    said = ProgressLog()
    (result,) = instep.load(tmp_path).run(progress=said)
    assert result.counts.written == 3
    assert server.events == []
    assert server.asked
    (told,) = {message for entity, message in said.lines if entity == "lineage"}
    assert "answered 503" in told
    server.answer = 201
    instep.load(tmp_path).run()
    assert kinds(server.events) == ["START", "COMPLETE"]


def test_a_missing_package_loses_no_event(
    tmp_path: Path, server: LineageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, server.url)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "httpx", None)
        (result,) = instep.load(tmp_path).run()
        assert result.state is JobState.COMPLETED
        found = next(each for each in instep.load(tmp_path).check() if each.subject == "lineage")
        assert found.hint == "pip install 'instep[openlineage]', or name a file."
    assert server.events == []
    instep.load(tmp_path).run()
    assert kinds(server.events) == ["START", "COMPLETE"]


def test_a_run_that_ends_waits_for_no_receiver(
    tmp_path: Path, server: LineageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, server.url)
    with monkeypatch.context() as patch:
        patch.setattr(lineage_outbox, "_AT_END", -1.0)
        patch.setattr(lineage_outbox, "_EVERY", 3600.0)
        instep.load(tmp_path).run()
    assert server.asked == 0
    instep.load(tmp_path).run()
    assert kinds(server.events) == ["START", "COMPLETE"]


def test_an_error_that_nobody_foresaw_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path, "lineage.ndjson")
    said = ProgressLog()
    monkeypatch.setattr(FileReceiver, "send", lambda *_: int("nothing"))
    (result,) = instep.load(tmp_path).run(progress=said)
    assert result.counts.written == 3
    assert [message for entity, message in said.lines if entity == "lineage"] == [
        "unexpected ValueError: invalid literal for int() with base 10: 'nothing'"
    ]


def test_an_event_that_is_refused_holds_up_no_other(tmp_path: Path, server: LineageServer) -> None:
    project(tmp_path, server.url)
    server.answer = 422
    instep.load(tmp_path).run()
    server.answer = 201
    corpus.write(tmp_path / "docs", range(3, 5))
    instep.load(tmp_path).run()
    assert kinds(server.events) == ["START", "COMPLETE"]
    assert server.events[0]["run"]["facets"]["instep"]["window"][0] > 0


def test_processes_side_by_side_send_each_event_once(tmp_path: Path) -> None:
    corpus.write(tmp_path / "docs", range(3))
    corpus.project(tmp_path, tmp_path / "docs")
    instep.load(tmp_path).run()
    file, address = tmp_path / "lineage.ndjson", instep.load(tmp_path).project.ledger_url
    start = threading.Barrier(4)

    def send() -> None:
        with closing(open_ledger(address, clock=SystemClock())) as ledger:
            translator = Translator("test", "1", Places(), ledger.instances.get)
            outbox = LineageOutbox(ledger, FileReceiver(file), translator, SystemClock(), Silent())
            start.wait()
            outbox.send()

    threads = [threading.Thread(target=send) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert kinds(lines(file)) == ["START", "COMPLETE"]


class Places:
    """Implements `Datasets`."""

    def inputs(self, entity: str) -> list[Dataset]:
        return [Dataset("file", f"/data/{entity}")]

    def outputs(self, entity: str, generation: str) -> list[Dataset]:
        return [Dataset("file", f"/index/{entity}{generation}")]


UUID = "5b6e1d5c-8d34-5c1a-9d0e-0d5f3b6c7a11"
OTHER = "6b6e1d5c-8d34-5c1a-9d0e-0d5f3b6c7a12"
INSTANCES = {
    UUID: Instance(UUID, "Page@global", "", 1, None, Reason.FIRST, InstanceState.BUILDING, 5),
    OTHER: Instance(OTHER, "Author@global", "v2", 2, None, Reason.FIRST, InstanceState.LIVE, 5),
}
BUILDING = e.InstanceBuilding(instance=UUID, job="job", target=9, fingerprint={}, inputs=(OTHER,))


def told(*events: e.Event, datasets: Places | None = None) -> list[dict[str, Any]]:
    translator, runs = Translator("project", "1", datasets or Places(), INSTANCES.get), OpenRuns()
    found = [
        event
        for number, each in enumerate(events, 1)
        for event in translator.told(e.Recorded(number, number, each), runs)
    ]
    for event in found:
        check(event)
    return found


def test_a_partition_that_is_dropped_aborts_what_was_in_work() -> None:
    dropped = e.PartitionDropped(ref="Page@global")
    assert kinds(told(BUILDING, dropped, dropped)) == ["START", "ABORT"]
    assert kinds(told(BUILDING, e.PartitionDropped(ref="Author@global"))) == ["START"]


def test_a_refresh_that_fails_is_a_run_that_fails_and_the_next_is_another() -> None:
    def refreshing(job: str) -> e.Event:
        return e.InstanceRefreshing(instance=UUID, job=job, floor=9, target=12)

    live = e.InstanceLive(instance=UUID, job="job", watermark=9, physical="p", counts=Counts())
    failed = e.RefreshFailed(instance=UUID, job="again", error="the target is full")
    refreshed = e.InstanceRefreshed(instance=UUID, job="third", watermark=12, counts=Counts())
    found = told(BUILDING, live, refreshing("again"), failed, refreshing("third"), refreshed)
    assert kinds(found) == ["START", "COMPLETE", "START", "FAIL", "START", "COMPLETE"]
    assert found[3]["run"]["facets"]["errorMessage"]["message"] == "the target is full"
    ids = [each["run"]["runId"] for each in found]
    assert ids[2] == ids[3]
    assert len(set(ids)) == 3


def test_what_an_instance_is_made_from_is_an_input() -> None:
    (start,) = told(BUILDING)
    assert [each["name"] for each in start["inputs"]] == ["/data/Page", "/index/Authorv2"]


def test_rows_are_counted_of_what_they_are_in() -> None:
    class Graph(Places):
        def inputs(self, entity: str) -> list[Dataset]:
            return [Dataset("file", "/a"), Dataset("file", "/b")]

        def outputs(self, entity: str, generation: str) -> list[Dataset]:
            return [Dataset("file", entity), Dataset("file", f"{entity}__PART_OF")]

    counts = Counts(read=3, written=2, skipped=1, rows_written=4)
    live = e.InstanceLive(instance=UUID, job="job", watermark=9, physical="p", counts=counts)
    _, end = told(BUILDING, live)
    assert _rows(end["inputs"], "input") == [3, None]
    assert _rows(end["outputs"], "output") == [4]
    _, end = told(BUILDING, live, datasets=Graph())
    assert _rows(end["inputs"], "input")[:2] == [None, None]
    assert _rows(end["outputs"], "output") == [2, None]


def _rows(datasets: list[dict[str, Any]], side: str) -> list[int | None]:
    facets = [each.get(f"{side}Facets", {}).get(f"{side}Statistics") for each in datasets]
    return [facet and facet["rowCount"] for facet in facets]


def test_an_end_without_its_start_is_not_told() -> None:
    """The start was forgotten before it could be sent."""
    live = e.InstanceLive(instance=UUID, job="job", watermark=9, physical="p", counts=Counts())
    assert told(live) == []
    assert kinds(told(BUILDING, live, live)) == ["START", "COMPLETE"]
