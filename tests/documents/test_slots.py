"""Requests at once: counted at a real server, while several processes with several threads each ask it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from instep.domain.planning import share_of_requests
from instep.errors import UserError
from instep.pipeline.documents.embed.http import HttpEmbedder, close_connections
from instep.pipeline.documents.embed.slots import slot
from tests.documents.endpoint import Endpoint, serving

ASKING = """
import sys, threading
from instep.pipeline.documents.embed.http import HttpEmbedder
embedder = HttpEmbedder(sys.argv[1], "m", 3, batch=1, requests_at_once=int(sys.argv[2]) or None)
threads = [threading.Thread(target=embedder.embed, args=(["a"] * 5,)) for _ in range(3)]
[each.start() for each in threads]
[each.join() for each in threads]
"""
HOLDING = """
import sys, time
from instep.pipeline.documents.embed.slots import slot
with slot(sys.argv[1], 1):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving() as running:
        running.pause = 0.03
        yield running
        close_connections()


def asked_by_three(endpoint: Endpoint, limit: int) -> None:
    command = [sys.executable, "-c", ASKING, endpoint.url, str(limit)]
    running = [subprocess.Popen(command) for _ in range(3)]
    assert [each.wait(60) for each in running] == [0, 0, 0]
    assert len(endpoint.asked) == 3 * 3 * 5


def test_all_processes_together_never_ask_more_than_the_limit_at_once(endpoint: Endpoint) -> None:
    asked_by_three(endpoint, 2)
    assert endpoint.most_open == 2


def test_without_a_limit_they_ask_as_they_like(endpoint: Endpoint) -> None:
    asked_by_three(endpoint, 0)
    assert endpoint.most_open > 2


def test_a_process_that_is_killed_leaves_its_slot(endpoint: Endpoint) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDING, endpoint.url], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    with holder.stdout as said:
        assert said.readline() == b"held\n"
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait(60)
    assert len(HttpEmbedder(endpoint.url, "m", 3, requests_at_once=1).embed(["a"])) == 1


def test_each_host_has_slots_of_its_own() -> None:
    with slot("http://one.example/v1", 1), slot("http://two.example/v1", 1), slot("http://one.example:81/v1", 1):
        pass


def test_a_folder_that_cannot_be_is_the_users_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"instep-requests-{os.getuid()}").write_text("in the way")
    with pytest.raises(UserError, match="cannot be counted"), slot("http://one.example", 1):
        pass


@pytest.mark.parametrize(("most", "workers", "share"), [(8, 1, 8), (8, 3, 2), (2, 5, 1), (8, 0, 8)])
def test_a_limit_is_shared_by_all_workers(most: int, workers: int, share: int) -> None:
    assert share_of_requests(most, workers) == share
