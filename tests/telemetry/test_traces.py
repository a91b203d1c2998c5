"""Traces as a collector gets them, and the records that name them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import nats
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import instep
from instep.api.application import create_app
from instep.telemetry.context import LONGEST, current_context, in_trace, is_traceparent, job_traceparent, received, sent
from tests.api.conftest import TIMEOUT_SECONDS, TOKEN, bearer, served
from tests.e2e import corpus
from tests.servers.nats import running_nats
from tests.telemetry.collector import Collector, collecting

#: Plans, and is stopped before its first wave.
PLANNER = """
import sys
from instep.cli import main
from instep.jobs.wave import WaveRunner

def stop(*_):
    raise KeyboardInterrupt

WaveRunner.run = stop
sys.exit(main(["worker", "--until-idle", "--engine", "inline", "--json"]))
"""
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STATE = "vendor=1,other=2"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    corpus.write(tmp_path / "docs", range(20))
    corpus.project(tmp_path, tmp_path / "docs")
    return tmp_path


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


def python(*args: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_request_its_plan_on_one_server_and_its_waves_on_another_are_one_trace(
    folder: Path, collector: Collector
) -> None:
    project = instep.load(folder)
    asked = {"entities": ["Document"], "useDistributedIndexing": True}
    # This server traces nothing, and passes on that its caller does.
    with served(create_app(project, token=TOKEN, loopback=True)) as address:
        headers = {"traceparent": CALLER, "tracestate": STATE, **bearer()}
        answer = httpx.post(f"{address}/api/jobs", json=asked, headers=headers, timeout=TIMEOUT_SECONDS)
    assert answer.status_code == 202, answer.text
    traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    planner = python("-c", PLANNER, folder=folder, **traced)
    assert planner.returncode == 0, planner.stderr
    assert [each.name for each in collector.spans] == ["plan"]
    worker = ("-m", "instep", "worker", "--until-idle", "--engine", "inline", "--json", "--metrics", "127.0.0.1:0")
    done = python(*worker, folder=folder, **traced)
    assert done.returncode == 0, done.stderr

    (view,) = project.jobs()
    (_, trace, caller, _) = CALLER.split("-")
    assert {(each.trace, each.state) for each in collector.spans} == {(trace, STATE)}
    (plan,), (job,), (promotion,) = map(collector.named, ("plan", "job", "promotion"))
    waves = collector.named("wave")
    assert (plan.parent, job.parent) == (caller, caller)
    assert {each.parent for each in (*waves, promotion)} == {job.id}
    assert plan.process not in {each.process for each in waves}, "two servers"
    for step in ("claim", "run", "commit", "complete"):
        assert [each.parent for each in collector.named(step)] == [each.id for each in waves]
    assert job.facts["instep.job"] == promotion.facts["instep.job"] == view.id
    assert job.facts["instep.written"] == 20
    assert job.seconds > promotion.seconds
    assert not any(each.failed for each in collector.spans)

    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert any(each["entity"] == "metrics" and each["message"].startswith("http://127.0.0.1:") for each in records)
    advanced = [each for each in records if each["event"] == "done"]
    assert advanced
    for each in advanced:
        assert (each["job"], each["trace"], each["ref"]) == (view.id, trace, "Document@global")
        assert each["instance"] == view.parts[0].instance
        assert each["wave"]
        assert ("slices" in each) != ("slice" in each)


def test_a_request_over_the_bus_joins_its_publishers_trace(folder: Path, collector: Collector) -> None:
    url = running_nats().url("traces")
    corpus.project(folder, folder / "docs", extra=f"bus: {url}\n")
    asyncio.run(_publish(url, {"Traceparent": CALLER, "Tracestate": STATE}))
    worker = ("-m", "instep", "worker", "--until-idle", "--engine", "inline", "--json")
    done = python(*worker, folder=folder, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
    assert done.returncode == 0, done.stderr
    (_, trace, caller, _) = CALLER.split("-")
    assert {(each.trace, each.state) for each in collector.spans} == {(trace, STATE)}
    (request,), (job,) = map(collector.named, ("request", "job"))
    assert (request.parent, job.facts["instep.written"]) == (caller, 20)
    assert {each.parent for each in collector.named("wave")} == {job.id}
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert {each["trace"] for each in told if each["entity"] == "Document"} == {trace}


async def _publish(url: str, headers: dict[str, str]) -> None:
    """As a program does that knows nothing of us."""
    server, _, prefix = url.rpartition("/")
    client = await nats.connect(server)
    stream = client.jetstream()
    await stream.add_stream(name=f"{prefix}_requests", subjects=[f"{prefix}.request.>"])
    request = b'{"type":"global","watermark":%d}' % (time.time_ns() // 1_000)
    await stream.publish(f"{prefix}.request.global", request, headers=headers)
    await client.close()


def test_an_error_is_reported_with_its_span_and_without_secrets(folder: Path, collector: Collector) -> None:
    code = (
        "from instep.telemetry import traces\n"
        "with traces.span('request') as span:\n"
        "    span.set(refs='Document')\n"
        "    with traces.span('plan') as idle:\n"
        "        idle.drop()\n"
        "    raise SystemExit('no access with password=hunter2')"
    )
    python("-c", code, folder=folder, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{collector.url}/v1/traces")
    (found,) = collector.spans
    assert (found.name, found.failed, found.parent) == ("request", True, "")
    assert found.why == "SystemExit: no access with password=***"
    assert found.facts == {"instep.refs": "Document"}


def test_missing_trace_libraries_are_one_clear_sentence(folder: Path) -> None:
    hidden = "import sys; sys.modules['opentelemetry'] = None; from instep.cli import main; sys.exit(main(['worker']))"
    missing = python("-c", hidden, folder=folder, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    assert missing.returncode == 1
    assert "hint: pip install 'instep[traces]'" in missing.stderr
    assert "Traceback" not in missing.stderr


def test_without_a_collector_nothing_of_opentelemetry_is_imported(folder: Path) -> None:
    code = (
        "import instep.jobs.worker, sys; instep.load('.').want(['Document'])"
        "; print([each for each in sys.modules if each.startswith(('opentelemetry', 'prometheus'))])"
    )
    done = python("-c", code, folder=folder, OTEL_SDK_DISABLED="true", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    assert done.stdout == "[]\n", done.stderr


def test_the_span_of_a_job_has_one_name_in_all_processes() -> None:
    ours = job_traceparent("job-1", CALLER)
    assert ours == job_traceparent("job-1", CALLER)
    assert ours.split("-")[1] == CALLER.split("-")[1]
    assert ours.split("-")[2] != job_traceparent("job-2", CALLER).split("-")[2]
    unsampled = job_traceparent("job-1", CALLER[:-2] + "00")
    assert unsampled.endswith("-00"), "what a sampler left out stays out"
    alone = job_traceparent("job-1", "")
    with in_trace(alone):
        assert current_context().traceparent == alone
    assert job_traceparent("job-1", f"{CALLER} {STATE}") == f"{ours} {STATE}"
    for nonsense in ("", "00-x", CALLER.upper(), CALLER + "-1", f"00-{'0' * 32}-b7ad6b7169203331-01"):
        with in_trace(nonsense):
            assert current_context().trace_id == ""


def test_headers_that_are_none_say_no_trace_or_leave_out_the_state() -> None:
    assert received({"traceparent": f" {CALLER} ", "tracestate": f"\t{STATE} "}) == f"{CALLER} {STATE}"
    for state in ("", " ", "x" * 513, "a=é", "a=1\r\nb: 2", "a=\x00"):
        assert received({"traceparent": CALLER, "tracestate": state}) == CALLER
    assert received({"tracestate": STATE}) == received({"traceparent": f"{CALLER} {STATE}"}) == ""
    with in_trace(f"{CALLER} {STATE}"):
        assert received(sent()) == current_context().traceparent == f"{CALLER} {STATE}"
    assert sent() == {}


@given(st.text() | st.just(CALLER) | st.text("0123456789abcdef-", max_size=60), st.text() | st.text("a1=, \t"))
@example(CALLER, "x" * 512)
@example(CALLER, "x" * 513)
def test_any_header_gives_a_trace_of_bounded_length_or_none(parent: str, state: str) -> None:
    found = received({"traceparent": parent, "tracestate": state})
    assert found == "" or (is_traceparent(found) and len(found) <= LONGEST and found.isascii() and found.isprintable())
    with in_trace(found):
        assert received(sent()) == current_context().traceparent == found
