"""A real run, watched from before there is a ledger until it has ended."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

import instep
from instep.api import progress_feed
from instep.api.application import create_app
from instep.jobs import wave_progress
from instep.pipeline.engine.inline import InlineEngine
from tests.api.progress_server import TIMEOUT_SECONDS, served
from tests.e2e import corpus


def test_a_run_is_watched_from_its_beginning_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_feed, "CHANGE_SECONDS", 0.005)
    monkeypatch.setattr(progress_feed, "PROGRESS_SECONDS", 0.01)
    corpus.write(tmp_path / "docs", range(30))
    corpus.project(tmp_path, tmp_path / "docs")
    project = instep.load(tmp_path)
    heard: list[dict[str, Any]] = []
    with ExitStack() as stack:
        port, _ = stack.enter_context(served(create_app(project, token="0" * 16, loopback=True)))
        patient: dict[str, Any] = {"open_timeout": TIMEOUT_SECONDS, "ping_interval": None, "max_queue": None}
        client = stack.enter_context(connect(f"ws://127.0.0.1:{port}/ws", **patient))
        client.send('{"subscribe": "searchIndexJobStatus"}')
        assert json.loads(client.recv(timeout=TIMEOUT_SECONDS))["data"] is None, "nothing has run yet"
        project.run(engine="inline")
        while not heard or heard[-1]["data"]["status"] != "COMPLETED":
            heard.append(json.loads(client.recv(timeout=TIMEOUT_SECONDS)))
    assert len({each["job"] for each in heard}) == 1
    assert [each["seq"] for each in heard] == list(range(heard[0]["seq"], heard[0]["seq"] + len(heard)))
    done = [each["data"]["stats"]["jobStats"]["successRecords"] for each in heard]
    assert done == sorted(done)
    assert heard[-1]["data"]["stats"]["entityStats"]["Document"] == {
        "totalRecords": 30,
        "successRecords": 30,
        "failedRecords": 0,
    }


def test_a_client_hears_how_far_the_first_wave_is_before_it_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_feed, "CHANGE_SECONDS", 0.005)
    monkeypatch.setattr(progress_feed, "PROGRESS_SECONDS", 0.01)
    monkeypatch.setattr(wave_progress, "TELL_SECONDS", 0.0)
    monkeypatch.setattr(wave_progress, "TELL_SECONDS_EACH", 0.0)
    corpus.write(tmp_path / "docs", range(30))
    corpus.project(tmp_path, tmp_path / "docs")
    project, was_heard, run = instep.load(tmp_path), threading.Event(), InlineEngine.run

    def until_heard(engine: InlineEngine, wave: Any, program: Any, tell: Any, *rest: Any) -> Any:
        """The wave reads seven documents, and goes on when a client has heard of them."""
        tell(7)
        assert was_heard.wait(TIMEOUT_SECONDS), "nobody heard of it"
        return run(engine, wave, program, lambda _: None, *rest)

    monkeypatch.setattr(InlineEngine, "run", until_heard)
    with ExitStack() as stack:
        port, _ = stack.enter_context(served(create_app(project, token="0" * 16, loopback=True)))
        patient: dict[str, Any] = {"open_timeout": TIMEOUT_SECONDS, "ping_interval": None, "max_queue": None}
        client = stack.enter_context(connect(f"ws://127.0.0.1:{port}/ws", **patient))
        client.send('{"subscribe": "searchIndexJobStatus"}')
        client.recv(timeout=TIMEOUT_SECONDS)
        running = stack.enter_context(ThreadPoolExecutor(1)).submit(project.run, engine="inline")
        data: dict[str, Any] = {}
        while not data or data["stats"]["jobStats"]["successRecords"] == 0:
            data = json.loads(client.recv(timeout=TIMEOUT_SECONDS))["data"] or {}
        assert data["stats"]["jobStats"] == {"totalRecords": 30, "successRecords": 7, "failedRecords": 0}
        assert "COMPLETED" not in {state for state, number in data["slices"].items() if number}
        was_heard.set()
        (result,) = running.result(timeout=TIMEOUT_SECONDS)
    assert result.counts.read == 30
