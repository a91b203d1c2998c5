"""A real run, watched from before there is a ledger until it has ended."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

import instep
from instep.api import progress_feed
from instep.api.application import create_app
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
